package queuetest

import (
	"reflect"
	"slices"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/testseed"
)

// Run runs the whole suite against the store behind h.
func Run(t *testing.T, h Harness) {
	if h.Open == nil && h.OpenCreated == nil {
		t.Fatal("queuetest: Harness.Open is missing")
	}
	h.Only.check(t)
	h.Elsewhere.check(t)
	for _, g := range groups {
		if len(h.Groups) > 0 && !slices.Contains(h.Groups, g.name) {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			for _, c := range g.cases {
				if (!h.Only.has(g.name, c.name) || len(h.Elsewhere) > 0 && h.Elsewhere.has(g.name, c.name)) && !testseed.Long() {
					continue // in the long form
				}
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					if what := c.needs.missing(h.Features); what != "" {
						t.Skipf("the store does not declare the feature %s", what)
					}
					order := penstock.FIFO
					if c.lifo {
						order = penstock.LIFO
					}
					c.run(newEnv(t, h, order))
				})
			}
		})
	}
}

// testCase is one promise. It gets a database of its own with one empty queue.
type testCase struct {
	name  string
	run   func(e *env)
	needs Features
	lifo  bool
}

type group struct {
	name  string
	cases []testCase
}

// groups lists every test, by subject, one file each.
var groups = []group{
	{"Claim", claimCases},
	{"Tx", txCases},
	{"Order", orderCases},
	{"Key", keyCases},
	{"Lease", leaseCases},
	{"Retry", retryCases},
	{"DeadJob", deadCases},
	{"Delay", delayCases},
	{"Dedup", dedupCases},
	{"Cancel", cancelCases},
	{"History", historyCases},
	{"Settings", settingsCases},
	{"Schedule", scheduleCases},
	{"Input", inputCases},
	{"Content", contentCases},
	{"Queue", queueCases},
	{"Status", statusCases},
	{"Groups", groupCases},
	{"Reclaim", reclaimCases},
	{"Maintain", maintainCases},
	{"Load", loadCases},
	{"Work", workCases},
	{"Model", modelCases},
}

// missing names the first feature that f asks for and have lacks.
func (f Features) missing(have Features) string {
	asks, has := reflect.ValueOf(f), reflect.ValueOf(have)
	for i := range asks.NumField() {
		if asks.Field(i).Bool() && !has.Field(i).Bool() {
			return asks.Type().Field(i).Name
		}
	}
	return ""
}
