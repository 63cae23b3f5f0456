package storetest

import (
	"testing"

	"github.com/penstock/penstock/internal/test/suite"
)

// Run runs the whole suite against the store behind h.
func Run(t *testing.T, h Harness) {
	if h.Open == nil {
		t.Fatal("storetest: Harness.Open is missing")
	}
	var all []suite.Group
	for _, g := range groups {
		var cases []suite.Case
		for _, c := range g.cases {
			open := h.openCreated
			if c.unmigrated {
				open = h.Open
			}
			cases = append(cases, suite.Case{Name: c.name, Long: c.long, Needs: c.needs, Run: func(t *testing.T) { c.run(newEnv(t, h, open)) }})
		}
		all = append(all, suite.Group{Name: g.name, Cases: cases})
	}
	suite.Run(t, suite.Choice{Groups: h.Groups, Only: h.Only, Elsewhere: h.Elsewhere, Features: h.Features}, all)
}

// testCase is one promise. It gets a separate database, migrated and with one empty outbox unless
// it says otherwise.
type testCase struct {
	name       string
	run        func(e *env)
	needs      Features
	unmigrated bool
	long       bool // in the long form of random tests only
}

// named are cases that have the names of their functions, without the group's: Window is dedupWindow of the group Dedup.
func named(group string, runs ...func(e *env)) (cases []testCase) {
	for _, run := range runs {
		cases = append(cases, testCase{name: suite.NameOf(group, run), run: run})
	}
	return cases
}

// needing are cases for stores with these features.
func needing(features Features, cases []testCase) []testCase {
	for i := range cases {
		cases[i].needs = features
	}
	return cases
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
