package archtest

import "testing"

// timeAllowed has the places, file and function, in which time may pass, and why that decides nothing.
var timeAllowed = map[string]string{
	"cmd/penstock/complete_test.go completed":                        "a completion that took longer than the shell waits is asked for again",
	"store/portable/distributed_test.go cluster.relay":               "the pause between looks of a relay that finds nothing",
	"store/portable/distributed_test.go TestDistributedWorkerKilled": "the load before a kill; the result is the same whenever it comes",
	"internal/test/tablestest/once.go deadlineWithin":                "a round trip lasts until a deadline has passed; if it passes before, the result is the same",
	// It runs in bubbles, which cannot be seen from where it is.
	"internal/forward/forward_test.go fake.Move":          "only in bubbles",
	"metrics/metrics_test.go database.Status":             "only in bubbles",
	"relay/fake_park_test.go outbox.fetchParked":          "only in bubbles",
	"relay/fake_test.go pass":                             "only in bubbles",
	"relay/park_test.go TestBusyParkedKeyIsRetried":       "testParking makes the bubble",
	"sink/webhook/silence_test.go TestSilence":            "run makes the bubble",
	"sink/webhook/stuck_test.go TestMisbehavingEndpoints": "the table's functions are called in a bubble",
	"work/ack_test.go fakeQueue.trickle":                  "only in bubbles",
	"work/fake_test.go fakeQueue.call":                    "only in bubbles",
	"work/fake_test.go fakeQueue.expire":                  "only in bubbles",
	"relay/breaker_test.go TestBreakerUnavailable":        "the breaker is told the time: it has no clock",
	"relay/breaker_test.go TestBreakerRefusing":           "the breaker is told the time: it has no clock",

	// Any moment is right.
	"store/mysql/queue_beside_test.go beside.waiting":                      "asked more often, MariaDB shows an old copy of who waits",
	"clients/conformance/mixed_test.go TestKeysAndBarriersAcrossLanguages": "the jobs' work",
	"internal/test/tcpproxy/tcpproxy.go Proxy.pass":                        "the distance that a test has asked for",
	"internal/test/adopttest/random.go fixture.write":                      "a writer's random pause",
	"internal/test/sinktest/killed.go killedAgainAndAgain":                 "how often the long form kills; each time it is the same that must hold",
	"internal/test/sinktest/outage.go cancelIsPrompt":                      "a cancelled Send ends whenever that is; mostly the buffers are full by then",
	"sink/nats/stuck_test.go TestStuckWrite":                               "as cancelIsPrompt; and Close ends whenever its context does",
	"store/mysql/galera_test.go runsOneAtATime":                            "the jobs' work",
	"store/postgres/adopt/model_test.go pause":                             "a writer's random pause",
	"internal/test/queuetest/load.go env.workers":                          "a pause after a claim of nothing",
	"internal/test/queuetest/unique.go uniqueAtOnce":                       "the jobs' work",
	"internal/test/queuetest/unique.go uniqueRollback":                     "only a store that does not wait sees the difference",
	"internal/test/queuetest/policies.go policiesExtensionUnderWay":        "as uniqueRollback; and a lease has ended",
	"internal/test/queuetest/work.go workStopInTheMiddle":                  "the jobs' work",
	"internal/test/queuetest/lease.go leaseEndsAtTheLeasesEnd":             "on each side of the end the same must hold; and a pause between claims",
	"internal/test/storetest/lease.go leaseSettleRacesTakeover":            "a race at a random moment: either may win",
	"internal/test/storetest/lease.go leaseContendersNeverBothSettle":      "random pauses: no message is settled by two, however they fall",
	"internal/test/storetest/order.go pauseAtRandom":                       "a writer's random pause",
	"cmd/penstock/systemtest/adopted_test.go killAdopted":                  "a random moment to kill",
	"cmd/penstock/systemtest/crash_test.go killRelays":                     "a random moment to kill",
	"cmd/penstock/systemtest/queue_crash_test.go killWorkers":              "a random moment to kill",
	"cmd/penstock/systemtest/tally_test.go ledger.keepWriting":             "the pace of a load",
	"internal/test/inboxtest/inbox.go waits":                               "mostly the other waits by then; if not, it finds what it would have found",

	// The result never comes before the context ends, however late that is.
	"internal/test/testserver/process.go process.end":             "ends in an error",
	"sink/kafka/send_test.go TestGivenUpStaysAway":                "the network is stalled",
	"sink/kafka/send_test.go TestProducersAreBounded":             "the one producer is taken until the test gives it back",
	"sink/kafka/send_test.go TestCloseEndsSends":                  "the broker does not answer",
	"sink/rabbitmq/limits_test.go broker.refuses":                 "the broker blocks until the test lifts that",
	"internal/test/sinktest/outage.go stallConfirmsNothing":       "the network is stalled",
	"sink/stdout/stdout_test.go TestBlockedReader":                "there is no reader",
	"internal/test/storetest/cancel.go cancelWaitingForTheWriter": "the writer is open until the test commits it",
	"internal/test/storetest/outage.go outageErrorsThenHeals":     "the database is away until the test lets it come back",

	// A lower bound: a slow machine makes it longer, and that is as right.
	"cmd/penstock/internal/run/forward_test.go TestForwardingFailsOnceItRan": "a start that is slower is a start, too",
	"cmd/penstock/work_process_test.go TestSecondSignalKillsTheCommand":      "a signal that comes sooner counts as the first again",
	"cmd/penstock/systemtest/outage_test.go TestHurrying":                    "a signal that comes sooner counts as the first again",
	"cmd/penstock/internal/console/shared_test.go TestManyLookAtOnce":        "what is read once a second may be read oftener the longer it took",
	"cmd/penstock/internal/console/bounded_test.go tenBrowsers":              "browsers that look every two seconds are what is measured, in the long form alone",
	"internal/test/testserver/testserver_test.go TestClock":                  "the server's clock is between what the test's says before and after",
	"sink/rabbitmq/network_test.go TestAttemptsAreSpacedOut":                 "there may be more attempts the longer it took",
	"store/sqlite/outbox_maintain_test.go TestStatusOfALargeBacklog":         "the rate may be lower the longer it took",
	"sink/rabbitmq/network_test.go TestBusyConnectionStays":                  "busy for longer than heartbeats may be missing; a pause begins it anew",
	"store/mysql/edge_test.go TestPublishedByATrigger":                       "the server sleeps and the server dates",
	"store/postgres/adopt/part_test.go TestClaimsFollowTheSinksPace":         "a sink that is slower yet makes the next claim smaller yet",
	"store/postgres/adopt/source_test.go TestLateIsDelivered":                "until a row is behind the slack",
	"store/postgres/adopt/source_test.go TestEachRowComesOnce":               "for a while, and a few sweeps, nothing comes twice",
	"internal/test/queuetest/claim.go claimReleaseForAWhile":                 "not before its time",
	"internal/test/queuetest/model.go walk.take":                             "not before its time, which had come when the claim returned",
	"internal/test/queuetest/rates.go policiesRateOverTime":                  "not before its time",
	"internal/test/queuetest/retry.go retryAfterAPause":                      "not before its time",
	"internal/test/queuetest/retry.go retryBackoff":                          "not before its time",
}

// Tests of the finder: its finds and its permissions. Each is the body of a test; t.Fatal
// stands for a failing call.
func TestDecidedByTime(t *testing.T) {
	for _, c := range []struct{ want, body string }{
		{"sleep", `time.Sleep(d)`},
		{"sleep", `<-time.After(d)`},
		{"sleep", `time.AfterFunc(d, cancel)`},
		{"sleep", `for i := 0; i < 9; i++ { time.Sleep(d) }`},
		{"sleep", `for range 9 { time.Sleep(d) }`},
		{"sleep", `for !ok() { time.Sleep(d); look() }`},
		{"sleep", `for !ok() { go func() { time.Sleep(d) }() }`},
		{"sleep", `helper()`},
		{"sleep", `new(fake).pause()`},
		{"", `for !ok() { time.Sleep(d) }`},
		{"", `for ; !ok(); time.Sleep(d) { look() }`},
		{"", `for { if err != nil { time.Sleep(d); continue }; return }`},
		{"", `time.AfterFunc(patience, cancel)`},
		{"", `synctest.Test(t, func(t *testing.T) { time.Sleep(d); helper(); onlyThere() })`},
		{"quiet", `select { case <-c: t.Fatal(); case <-time.After(d): }`},
		{"", `select { case <-c: case <-time.After(d): t.Fatal() }`},
		{"", `for { select { case <-c: return; case <-time.After(d): look() } }`},
		{"elapsed", `if time.Since(began) > d { t.Fatal() }`},
		{"elapsed", `took := time.Since(began); worst := max(took, d); if d < worst { t.Fatal() }`},
		{"elapsed", `if b.At.Sub(a.At) >= d { t.Fatal() }`},
		{"elapsed", `if until.Before(time.Now()) { t.Fatal() }`},
		{"elapsed", `end := time.Now().Add(d); look(); if !end.After(time.Now()) { t.Fatal() }`},
		{"elapsed", `for !ok() { began := time.Now(); look(); if time.Since(began) > d { t.Fatal() } }`},
		{"elapsed", `for time.Since(began) < d { look() }`},
		{"elapsed", `for !ok() || time.Since(began) < d { look() }`},
		{"", `for end := time.Now().Add(d); !ok(); { if time.Now().After(end) { t.Fatal() } }`},
		{"", `for !ok() && time.Since(began) < d { look() }`},
		{"", `before := time.Now(); look(); if created.Before(before) { t.Fatal() }`},
		{"", `if time.Since(created) > time.Hour { t.Fatal() }`},
		{"", `eventually("it is old", func() bool { return time.Since(created) > d })`},
		{"", `if took > d { t.Fatal() }`},
		{"short", `ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)`},
		{"", `ctx, cancel := context.WithTimeout(t.Context(), time.Minute)`},
		{"", `for !ok() { ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) }`},
	} {
		const rest = `
func helper()         { time.Sleep(d) }
func onlyThere()      { time.Sleep(d) }
func (f *fake) pause() { time.Sleep(d) }
func BenchmarkX(b *testing.B) { time.Sleep(d); onlyThere() }
type fake struct{}
`
		got := ""
		for _, f := range decidedByTime(t, map[string]string{"x_test.go": "package x\nfunc TestX(t *testing.T) {" + c.body + "}" + rest}) {
			got = f.what
		}
		if got != c.want {
			t.Errorf("%s\nfinds %q, want %q", c.body, got, c.want)
		}
	}
}
