package metrics_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock/penstock/metrics"
)

var descText = regexp.MustCompile(`^Desc\{fqName: "(\w+)", help: "(.*)", unit: ".*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// rows are the rows that docs/reference/metrics.md must have by the code.
func rows(t *testing.T) (all []string) {
	t.Helper()
	descs := make(chan *prometheus.Desc, 200)
	metrics.New(metrics.Options{}).Describe(descs)
	close(descs)
	for d := range descs {
		m := descText.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("%s is not understood", d)
		}
		labels := strings.Split(m[4], ",")
		if m[3] != "" {
			labels = []string{"goversion", "revision", "version"}
		}
		for i := range labels {
			if labels[i] != "" {
				labels[i] = "`" + labels[i] + "`"
			}
		}
		all = append(all, "| `"+m[1]+"` | "+strings.Join(labels, " ")+" | "+m[2]+" |")
	}
	return all
}

// docs/reference/metrics.md has every metric, as the code describes it, and no other.
func TestReference(t *testing.T) {
	text, err := os.ReadFile("../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| `penstock_") {
			documented[strings.TrimSpace(line)] = true
		}
	}
	for _, row := range rows(t) {
		if !documented[row] {
			t.Errorf("docs/reference/metrics.md has no line\n%s", row)
		}
		delete(documented, row)
	}
	for row := range documented {
		t.Errorf("docs/reference/metrics.md has a metric that is not there:\n%s", row)
	}
}
