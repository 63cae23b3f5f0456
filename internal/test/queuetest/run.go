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
	suite.Run(t, suite.Choice{Groups: h.Groups, Only: h.Only, Elsewhere: h.Elsewhere, Features: h.Features}, groups, func(t *testing.T, lifo bool) *env {
		if lifo {
			return newEnv(t, h, penstock.LIFO)
		}
		return newEnv(t, h, penstock.FIFO)
	})
}

// testCase is one promise. It gets a separate database with one empty queue; of the Other ones it is LIFO.
type (
	testCase = suite.Case[*env, Features]
	group    = suite.Group[*env, Features]
)

var named, needing = suite.Named[*env, Features], suite.Needing[*env, Features]

// groups lists every test, by subject, one file each.
var groups = []group{
	{Name: "Claim", Cases: claimCases},
	{Name: "Tx", Cases: txCases},
	{Name: "Order", Cases: orderCases},
	{Name: "Key", Cases: keyCases},
	{Name: "Lease", Cases: leaseCases},
	{Name: "Retry", Cases: retryCases},
	{Name: "DeadJob", Cases: deadCases},
	{Name: "Delay", Cases: delayCases},
	{Name: "Dedup", Cases: dedupCases},
	{Name: "Cancel", Cases: cancelCases},
	{Name: "History", Cases: historyCases},
	{Name: "Report", Cases: reportCases},
	{Name: "Settings", Cases: settingsCases},
	{Name: "Schedule", Cases: scheduleCases},
	{Name: "Input", Cases: inputCases},
	{Name: "Content", Cases: contentCases},
	{Name: "Kind", Cases: kindCases},
	{Name: "Options", Cases: optionCases},
	{Name: "Barrier", Cases: barrierCases},
	{Name: "Unique", Cases: uniqueCases},
	{Name: "Queue", Cases: queueCases},
	{Name: "Status", Cases: statusCases},
	{Name: "List", Cases: listCases},
	{Name: "Groups", Cases: groupCases},
	{Name: "Policies", Cases: policyCases},
	{Name: "Reclaim", Cases: reclaimCases},
	{Name: "Maintain", Cases: maintainCases},
	{Name: "Load", Cases: loadCases},
	{Name: "Work", Cases: workCases},
	{Name: "Forward", Cases: forwardCases},
	{Name: "Model", Cases: modelCases},
}
