package metrics_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/penstock/penstock/internal/test/testserver"
)

var metricName = regexp.MustCompile(`penstock_\w+`)

// Every alert uses existing metrics and labels, and names the next step.
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
	labels := labelsOf(t)
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) < 10 {
		t.Fatal("alerts are missing")
	}
	for _, r := range file.Groups[0].Rules {
		names := metricName.FindAllString(r.Expr, -1)
		if len(names) == 0 || r.Annotations["summary"] == "" || r.Annotations["next_step"] == "" || r.Labels["severity"] == "" {
			t.Errorf("%s is about nothing, or says nothing", r.Alert)
		}
		checkNames(t, r.Alert, r.Expr, labels)
		for _, name := range names {
			for _, used := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(r.Annotations["summary"]+r.Annotations["next_step"], -1) {
				if !strings.Contains(labels[name], "`"+used[1]+"`") {
					t.Errorf("%s: %s has no label %s", r.Alert, name, used[1])
				}
			}
		}
	}
}

// labelsOf returns the labels of each metric, with those that its samples get.
func labelsOf(t *testing.T) map[string]string {
	t.Helper()
	labels := map[string]string{}
	for _, row := range rows(t) {
		cells := strings.Split(row, "|")
		name := strings.Trim(cells[1], " `")
		labels[name] = cells[2] + " `instance`"
		if strings.HasSuffix(name, "_seconds") {
			labels[name+"_bucket"] = labels[name] + " `le`"
		}
	}
	return labels
}

var (
	labelLists    = regexp.MustCompile(`(?:by|without|on) \(([^)]*)\)`)
	labelMatchers = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`)
)

// checkNames requires that the metrics of an expression exist, and have the labels that it uses.
func checkNames(t *testing.T, of, expr string, labels map[string]string) {
	t.Helper()
	var used []string
	for _, list := range labelLists.FindAllStringSubmatch(expr, -1) {
		used = append(used, regexp.MustCompile(`\w+`).FindAllString(list[1], -1)...)
	}
	for _, m := range labelMatchers.FindAllStringSubmatch(expr, -1) {
		used = append(used, m[1])
	}
	for _, name := range metricName.FindAllString(expr, -1) {
		if labels[name] == "" {
			t.Errorf("%s: there is no %s", of, name)
		}
		for _, label := range used {
			if label == "le" && strings.Contains(expr, "_bucket") && !strings.HasSuffix(name, "_bucket") {
				continue // of its histogram
			}
			if labels[name] != "" && !strings.Contains(labels[name], "`"+label+"`") {
				t.Errorf("%s: %s has no label %s", of, name, label)
			}
		}
	}
}

// Each expression of the dashboard uses existing metrics and labels, and Prometheus can parse it.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../deploy/grafana/penstock.json")
	must(t, err)
	var board struct {
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, W int }
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
	}
	must(t, json.Unmarshal(text, &board))
	labels, rules, ids := labelsOf(t), "groups:\n- name: dashboard\n  rules:\n", map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %d %q has another's id, no room or no expression", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			checkNames(t, p.Title, target.Expr, labels)
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			rules += fmt.Sprintf("  - {record: 'panel_%d', expr: '%s'}\n", p.ID, strings.ReplaceAll(expr, "'", "''"))
		}
	}
	for _, v := range board.Templating.List {
		if v.Type == "query" {
			name, label, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(v.Definition, "label_values("), ")"), ", ")
			checkNames(t, "variable "+v.Name, name+" by ("+label+")", labels)
		}
	}
	if len(ids) < 20 {
		t.Errorf("%d panels", len(ids))
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	must(t, os.WriteFile(file, []byte(rules), 0o600))
	if out, err := exec.Command(testserver.Promtool(t), "check", "rules", "--lint=none", file).CombinedOutput(); err != nil {
		t.Errorf("Prometheus cannot parse it: %v\n%s", err, out)
	}
}

// Each alert fires on series with its problem, and not on healthy ones: alerts_test.yaml has both for every
// alert, or alerts_day_test.yaml for those that look back over a day.
func TestAlertsFire(t *testing.T) {
	promtool := testserver.Promtool(t)
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml", "alerts_day_test.yaml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = "../deploy/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", args, err, out)
		}
	}
	tests, err := os.ReadFile("../deploy/prometheus/alerts_test.yaml")
	must(t, err)
	overDays, err := os.ReadFile("../deploy/prometheus/alerts_day_test.yaml")
	must(t, err)
	tests = append(tests, overDays...)
	rules, err := os.ReadFile("../deploy/prometheus/alerts.yaml")
	must(t, err)
	for _, alert := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
		healthy, inTrouble := "alertname: "+alert[1]+"}", "alertname: "+alert[1]+"\n        exp_alerts"
		if !strings.Contains(string(tests), healthy) || !strings.Contains(string(tests), inTrouble) {
			t.Errorf("alerts_test.yaml has no test that %s fires, or none that it does not", alert[1])
		}
	}
}
