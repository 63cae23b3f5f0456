package metrics_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/metrics"
	"github.com/penstock/penstock/relay"
)

// A name that is not UTF-8, which a database without an encoding may have, is quoted. A value that cannot be exported hides
// no other, and is logged.
func TestNamesThatCannotBeTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		d := busy()
		d.queues = append(d.queues, admin.QueueStatus{Queue: "caf\xe9", Ready: 7}, admin.QueueStatus{Queue: "twice"}, admin.QueueStatus{Queue: "twice"})
		m := metrics.New(metrics.Options{Store: d, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		m.Relay("caf\xe9", "billing").Sent(relay.Send{})
		m.Worker("caf\xe9").Claimed(2)
		wants(t, ask(t, m.Handler()), map[string]float64{
			`penstock_queue_jobs{queue="\"caf\\xe9\"",state="ready"}`: 7, `penstock_worker_claimed_jobs_total{queue="\"caf\\xe9\""}`: 2,
			`penstock_relay_sent_messages_total{outbox="\"caf\\xe9\"",subscription="billing"}`: 0, `penstock_database_up`: 1,
		})
		if !strings.Contains(log.String(), "twice") {
			t.Errorf("the log does not say what could not be told: %s", &log)
		}
	})
}

// Whatever characters names have, the metrics can be parsed and contain the names.
func TestNamesOfAnyCharacters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = ",;\"\\\n\t\r%{}='`# é𝒳 "
		d := busy()
		d.group = name
		d.outboxes[0].Outbox, d.outboxes[0].Subscriptions[0].Subscription = name, name
		d.queues[0].Queue, d.inboxes[0].Consumer = name, name
		m := metrics.New(metrics.Options{Store: d, Groups: 1, Logger: slog.New(slog.DiscardHandler)})
		m.Relay(name, name).Sent(relay.Send{})
		m.Worker(name).Claimed(2)
		m.Ingest().Answered(name, 200, 1, time.Second)
		families := ask(t, m.Handler())
		wants(t, families, map[string]float64{
			fmt.Sprintf("penstock_queue_jobs{queue=%q,state=\"ready\"}", name): 3, fmt.Sprintf("penstock_queue_group_dead_letters{group=%q,queue=%[1]q}", name): 0,
			fmt.Sprintf("penstock_subscription_backlog_messages{outbox=%q,subscription=%[1]q}", name): 5, fmt.Sprintf("penstock_inbox_held_messages{consumer=%q}", name): 2,
			fmt.Sprintf("penstock_relay_sent_messages_total{outbox=%q,subscription=%[1]q}", name): 0, fmt.Sprintf("penstock_worker_claimed_jobs_total{queue=%q}", name): 2,
		})
		for of, family := range families {
			for _, series := range family.Metric {
				for _, l := range series.Label {
					if slices.Contains([]string{"outbox", "subscription", "queue", "group", "consumer", "name"}, l.GetName()) && strings.HasPrefix(of, "penstock_") && l.GetValue() != name {
						t.Errorf("%s has %s=%q", of, l.GetName(), l.GetValue())
					}
				}
			}
		}
	})
}
