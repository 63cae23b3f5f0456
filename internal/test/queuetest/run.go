package queuetest

import (
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/suite"
)

// Run runs the whole suite against the store behind h.
func Run(t *testing.T, h Harness) {
	if h.Open == nil && h.OpenCreated == nil {
		t.Fatal("queuetest: Harness.Open is missing")
	}
	var all []suite.Group
	for _, g := range groups {
		var cases []suite.Case
		for _, c := range g.cases {
			order := penstock.FIFO
			if c.lifo {
				order = penstock.LIFO
			}
			cases = append(cases, suite.Case{Name: c.name, Needs: c.needs, Run: func(t *testing.T) { c.run(newEnv(t, h, order)) }})
		}
		all = append(all, suite.Group{Name: g.name, Cases: cases})
	}
	suite.Run(t, suite.Choice{Groups: h.Groups, Only: h.Only, Elsewhere: h.Elsewhere, Features: h.Features}, all)
}

// testCase is one promise. It gets a separate database with one empty queue.
type testCase struct {
	name  string
	run   func(e *env)
	needs Features
	lifo  bool
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
	{"Report", reportCases},
	{"Settings", settingsCases},
	{"Schedule", scheduleCases},
	{"Input", inputCases},
	{"Content", contentCases},
	{"Kind", kindCases},
	{"Options", optionCases},
	{"Barrier", barrierCases},
	{"Unique", uniqueCases},
	{"Queue", queueCases},
	{"Status", statusCases},
	{"List", listCases},
	{"Groups", groupCases},
	{"Policies", policyCases},
	{"Reclaim", reclaimCases},
	{"Maintain", maintainCases},
	{"Load", loadCases},
	{"Work", workCases},
	{"Forward", forwardCases},
	{"Model", modelCases},
}
