package penstock_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
)

// The table of limits agrees with the constants.
func TestDocumentedLimits(t *testing.T) {
	text, err := os.ReadFile("docs/reference/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{
		"MaxPayloadBytes": penstock.MaxPayloadBytes, "MaxKeyBytes": penstock.MaxKeyBytes, "MaxTopicBytes": penstock.MaxTopicBytes,
		"MaxIDBytes": penstock.MaxIDBytes, "MaxHeaderBytes": penstock.MaxHeaderBytes, "MaxGroupBytes": penstock.MaxGroupBytes,
		"MaxDedupBytes": penstock.MaxDedupBytes, "MaxPriority": penstock.MaxPriority, "MaxNameBytes": penstock.MaxNameBytes,
		"MaxSubscriptionBytes": penstock.MaxSubscriptionBytes, "MaxScheduleBytes": penstock.MaxScheduleBytes,
		"MaxHolderBytes": penstock.MaxHolderBytes, "MaxClaim": driver.MaxClaim, "MaxRows": admin.MaxRows,
		"MaxFailures": penstock.MaxFailures, "MaxSinkErrorBytes": driver.MaxSinkErrorBytes,
		"MaxReportBytes": penstock.MaxReportBytes,
	}
	number := regexp.MustCompile(`^\d+`)
	for _, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(line, " | ")
		for name, limit := range want {
			if len(cells) < 4 || !strings.Contains(cells[3], "`"+name+"`") {
				continue
			}
			if got := number.FindString(cells[2]); got != fmt.Sprint(limit) {
				t.Errorf("docs/reference/limits.md says %s for %s, which is %d", got, name, limit)
			}
			delete(want, name)
		}
	}
	for name := range want {
		t.Errorf("docs/reference/limits.md does not mention %s", name)
	}
}
