package inboxtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

const (
	perRound  = 20 // messages, jobs and ids
	claimed   = 2 * perRound
	ofKey     = 4 // messages or jobs of a key, which no other round has
	payload   = 200
	retained  = perRound * payload // bytes of messages that are kept after they are settled
	dayRounds = 3                  // after which all that is there is a day older
)

// An outbox, a queue and an inbox always have work under way: messages and jobs of one round are settled in the next one. Messages are parked, jobs
// fail, leases end, and gaps are passed. After each round no table has more rows than the open work, the settings and the limits of a call allow.
// A process that settles leaves one row. An inbox forgets two ids for each that comes. A table without a bound does not grow.
func neverIdle(f *fixture) {
	if f.Tables == nil {
		f.Skip("the store has its own test")
	}
	s := f.Store.(driver.Store)
	queues := f.Store.(driver.QueueStore)
	f.OK(f.Store.SetInbox(f.Context(), consumer, time.Hour))
	f.OK(s.CreateOutbox(f.Context(), "flow"))
	f.OK(s.(driver.Operator).SetRetention(f.Context(), "flow", admin.Retention{Bytes: retained}))
	f.OK(queues.CreateQueue(f.Context(), "work", penstock.FIFO))
	f.OK(queues.SetQueue(f.Context(), "work", penstock.QueueSettings{DedupWindow: new(time.Microsecond)}))
	l := &endless{fixture: f, store: s, queue: queues.DriverQueue("work")}
	for _, subscription := range []string{"ships", "counts"} {
		ask := driver.Subscribe{Outbox: "flow", Subscription: subscription, Holder: "test", Lease: suite.LongLease}
		src := suite.Get(s.Subscribe(f.Context(), ask)).Must(f, "Subscribe")
		f.Cleanup(func() { _ = src.Close(context.WithoutCancel(f.Context())) })
		l.readers = append(l.readers, &endlessReader{src: src})
	}
	tables, bounds, most := f.Tables(f), map[string]int{}, map[string]int{}
	for _, table := range tables {
		bounds[table] = f.Count(f, table) // what was made before
	}
	parked := 4 * ofKey                                    // the first of a key comes back alone two rounds later, and the others two rounds after that
	settled := parked + retained/payload                   // by one subscription at least
	swept := dayRounds * perRound                          // settled longer after it was published than a transaction may last, on a slow machine: goes with the next look everywhere
	jobs := claimed + 4*perRound/ofKey                     // under way, and those that wait for the first of their key, which runs in up to four rounds
	days := func(n int) int { return n * (dayRounds + 1) } // what is a day old goes in the round after that
	for table, rows := range map[string]int{
		"outbox_flow": 2*perRound + settled + swept, "entries": 2 * (settled + swept), "progress": days(2 * 3), // two subscriptions settle up to three batches
		"queue_work": jobs, "leases": claimed, "tries": claimed, "dedup": perRound,
		"attempts": days(1) + 2, // of leases that have ended, and the last of two processes
		"received": days(perRound + 2), "gaps": days(1), "key_heads": days(1), "held": 1,
		// SQLite has these in place of entries and tries.
		"parked": parked, "parked_keys": parked, "ready": jobs, "keyed": jobs, "busy": claimed, "histories": claimed, "scheduled": claimed,
	} {
		bounds[table] += rows
	}
	for round := range testseed.Steps(48) {
		if round%dayRounds == 0 {
			l.day()
		}
		l.round(round)
		for _, table := range tables {
			rows := f.Count(f, table)
			if most[table] = max(most[table], rows); rows > bounds[table] {
				f.Fatalf("after round %d %s has %d rows, at most %d are promised", round, table, rows, bounds[table])
			}
		}
	}
	for _, table := range slices.Sorted(slices.Values(tables)) {
		f.Logf("%s: %d rows at most, %d are promised", table, most[table], bounds[table])
	}
}

// endless is the load.
type endless struct {
	*fixture
	store   driver.Store
	queue   driver.Queue
	readers []*endlessReader
	running []penstock.Job
}

type endlessReader struct {
	src   driver.Source
	under []driver.Batch
}

// day lets a day pass. Another process looks after what the first one does not look for so soon.
func (l *endless) day() {
	l.Age(l)
	another := l.Another(l)
	l.OK(another.Maintain(l.Context(), "flow"))
	l.OK(another.(driver.QueueStore).DriverQueue("work").Maintain(l.Context()))
	l.OK(another.Close())
}

func (l *endless) round(round int) {
	l.outbox(round)
	l.jobs(round)
	l.received(round)
	l.OK(l.store.Maintain(l.Context(), "flow"))
	l.OK(l.queue.Maintain(l.Context()))
}

func (l *endless) outbox(round int) {
	messages := make([]penstock.Message, perRound)
	for i := range messages {
		messages[i] = penstock.Message{Key: fmt.Sprint(round, "-", i/ofKey), Payload: make([]byte, payload)}
	}
	messages[0].Payload[0] = 1 // is refused at first
	l.OK(l.store.Publish(l.Context(), "flow", messages...))
	for n, r := range l.readers {
		before := r.under
		r.under = nil
		for {
			b := suite.Get(r.src.Fetch(l.Context(), driver.Limit{Messages: 1000, Bytes: 8 << 20})).Must(l, "Fetch")
			if len(b.Messages) == 0 {
				break
			}
			r.under = append(r.under, b)
		}
		for _, b := range before {
			verdicts, refused := make([]driver.Verdict, len(b.Messages)), ""
			for i, m := range b.Messages {
				switch {
				case n == 0 && m.Payload[0] == 1 && m.Attempt == 1:
					refused = m.Key
					verdicts[i] = driver.Verdict{Outcome: driver.Parked, Failures: []penstock.Failure{{Attempt: 1, Err: "no"}}}
				case b.Order(i) == driver.BehindParked || m.Key == refused:
					verdicts[i] = driver.Verdict{Outcome: driver.Parked}
				}
			}
			l.OK(r.src.Settle(l.Context(), b.Number, driver.Settled{Batch: b, Verdicts: verdicts}))
		}
	}
}

func (l *endless) jobs(round int) {
	jobs := make([]penstock.NewJob, perRound)
	for i := range jobs {
		jobs[i] = penstock.NewJob{DedupKey: fmt.Sprint(round, "-", i), Payload: make([]byte, payload)}
		if i%2 == 0 {
			jobs[i].Key = fmt.Sprint(round, "-", i/ofKey)
		}
	}
	suite.Get(l.queue.Enqueue(l.Context(), jobs...)).Must(l, "Enqueue")
	var done []int64
	fresh := 0
	for _, j := range l.running {
		if j.Attempt == 1 {
			fresh++
		}
		switch {
		case j.Attempt == 1 && fresh == 1: // its lease ends
			suite.Get(l.queue.Extend(l.Context(), time.Microsecond, j.Lease)).Must(l, "Extend")
		case j.Attempt == 1 && fresh%5 == 0:
			suite.Get(l.queue.Retry(l.Context(), j.Lease, 0, "no")).Must(l, "Retry")
		default:
			done = append(done, j.Lease)
		}
	}
	suite.Get(l.queue.Ack(l.Context(), done...)).Must(l, "Ack")
	l.running = suite.Get(l.queue.Claim(l.Context(), driver.Claim{Jobs: claimed, Lease: suite.LongLease})).Must(l, "Claim")
}

func (l *endless) received(round int) {
	l.in(func(tx Tx) {
		ids := make([]string, perRound)
		for i := range ids {
			ids[i] = fmt.Sprint(round, "-", i)
		}
		l.wantFresh(tx, ids, ids...)
	})
	key, held, never := fmt.Sprint("k", round), fmt.Sprint("held ", round), fmt.Sprint("never ", round)
	l.in(func(tx Tx) {
		suite.Get(tx.InOrder(l.Context(), received(key, held, never), 0)).Must(l, "InOrder")
	})
	l.in(func(tx Tx) {
		due := suite.Get(tx.Due(l.Context(), 10)).Must(l, "Due")
		if len(due) != 1 || due[0].ID != held {
			l.Errorf("due are %v, want %s", due, held)
		}
	})
}
