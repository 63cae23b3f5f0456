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
	suite.Run(t, suite.Choice{Groups: h.Groups, Only: h.Only, Elsewhere: h.Elsewhere, Features: h.Features}, groups, func(t *testing.T, unmigrated bool) *env {
		if unmigrated {
			return newEnv(t, h, h.Open)
		}
		return newEnv(t, h, h.openCreated)
	})
}

// testCase is one promise. It gets a separate database, migrated and with one empty outbox; of the Other ones it is not migrated.
type (
	testCase = suite.Case[*env, Features]
	group    = suite.Group[*env, Features]
)

var named, needing = suite.Named[*env, Features], suite.Needing[*env, Features]

// groups lists every test, by subject, one file each.
var groups = []group{
	{Name: "Visibility", Cases: visibilityCases},
	{Name: "Order", Cases: orderCases},
	{Name: "Lease", Cases: leaseCases},
	{Name: "Settle", Cases: settleCases},
	{Name: "Part", Cases: partCases},
	{Name: "Parked", Cases: parkedCases},
	{Name: "ParkedSettle", Cases: parkedSettleCases},
	{Name: "ParkedLoad", Cases: parkedLoadCases},
	{Name: "Hold", Cases: holdCases},
	{Name: "Paging", Cases: pagingCases},
	{Name: "Subscription", Cases: subscriptionCases},
	{Name: "DropSubscription", Cases: dropSubscriptionCases},
	{Name: "DeadLetter", Cases: deadLetterCases},
	{Name: "DeadLetterQuery", Cases: deadLetterQueryCases},
	{Name: "Replay", Cases: replayCases},
	{Name: "Reclaim", Cases: reclaimCases},
	{Name: "Retention", Cases: retentionCases},
	{Name: "Restore", Cases: restoreCases},
	{Name: "Content", Cases: contentCases},
	{Name: "Once", Cases: onceCases},
	{Name: "Input", Cases: inputCases},
	{Name: "Outbox", Cases: outboxCases},
	{Name: "Status", Cases: statusCases},
	{Name: "Cancel", Cases: cancelCases},
	{Name: "Outage", Cases: outageCases},
	{Name: "Lost", Cases: lostCases},
	{Name: "Model", Cases: modelCases},
}
