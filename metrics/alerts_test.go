package metrics_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

var metricName = regexp.MustCompile(`penstock_\w+`)

// Every alert is about metrics that are there, by labels that they have, and names the next step.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../deploy/prometheus/alerts.yaml")
	must(t, err)
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	must(t, yaml.UnmarshalWithOptions(text, &file, yaml.Strict()))
	labels := map[string]string{} // of each metric
	for _, row := range rows(t) {
		cells := strings.Split(row, "|")
		labels[strings.Trim(cells[1], " `")] = cells[2] + " `instance`"
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) < 10 {
		t.Fatal("alerts are missing")
	}
	for _, r := range file.Groups[0].Rules {
		names := metricName.FindAllString(r.Expr, -1)
		if len(names) == 0 || r.Annotations["summary"] == "" || r.Annotations["next_step"] == "" || r.Labels["severity"] == "" {
			t.Errorf("%s is about nothing, or says nothing", r.Alert)
		}
		for _, name := range names {
			if labels[name] == "" {
				t.Errorf("%s: there is no %s", r.Alert, name)
			}
			for _, used := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(r.Annotations["summary"]+r.Annotations["next_step"], -1) {
				if !strings.Contains(labels[name], "`"+used[1]+"`") {
					t.Errorf("%s: %s has no label %s", r.Alert, name, used[1])
				}
			}
		}
	}
}
