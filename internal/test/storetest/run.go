package storetest

import (
	"reflect"
	"slices"
	"testing"

	"github.com/penstock/penstock/internal/test/testseed"
)

// Run runs the whole suite against the store behind h.
func Run(t *testing.T, h Harness) {
	if h.Open == nil {
		t.Fatal("storetest: Harness.Open is missing")
	}
	h.Only.check(t)
	h.Elsewhere.check(t)
	for _, g := range groups {
		if len(h.Groups) > 0 && !slices.Contains(h.Groups, g.name) {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			for _, c := range g.cases {
				if (c.long || !h.Only.has(g.name, c.name) || len(h.Elsewhere) > 0 && h.Elsewhere.has(g.name, c.name)) && !testseed.Long() {
					continue // in the long form
				}
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					if what := c.needs.missing(h.Features); what != "" {
						t.Skipf("the store does not declare the feature %s", what)
					}
					if c.unmigrated {
						c.run(newEnv(t, h, h.Open))
						return
					}
					c.run(newEnv(t, h, h.openCreated))
				})
			}
		})
	}
}

// testCase is one promise. It gets a database of its own, migrated and with one
// empty outbox unless it says otherwise.
type testCase struct {
	name       string
	run        func(e *env)
	needs      Features
	unmigrated bool
	long       bool // in the long form of random tests only
}

type group struct {
	name  string
	cases []testCase
}

// groups lists every test, by subject, one file each.
var groups = []group{
	{"Visibility", visibilityCases},
	{"Order", orderCases},
	{"Lease", leaseCases},
	{"Settle", settleCases},
	{"Part", partCases},
	{"Parked", parkedCases},
	{"ParkedSettle", parkedSettleCases},
	{"ParkedLoad", parkedLoadCases},
	{"Hold", holdCases},
	{"Paging", pagingCases},
	{"Subscription", subscriptionCases},
	{"DropSubscription", dropSubscriptionCases},
	{"DeadLetter", deadLetterCases},
	{"DeadLetterQuery", deadLetterQueryCases},
	{"Replay", replayCases},
	{"Reclaim", reclaimCases},
	{"Retention", retentionCases},
	{"Restore", restoreCases},
	{"Content", contentCases},
	{"Once", onceCases},
	{"Input", inputCases},
	{"Outbox", outboxCases},
	{"Status", statusCases},
	{"Cancel", cancelCases},
	{"Outage", outageCases},
	{"Lost", lostCases},
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
