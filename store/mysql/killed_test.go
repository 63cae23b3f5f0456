package mysql_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// ledger is what producers were told is kept, and what consumers have seen.
type ledger struct {
	sync.Mutex
	kept, seen map[string]bool
	last       map[string]int // of each producer and key
	overtaken  []string
}

func newLedger() *ledger {
	return &ledger{kept: map[string]bool{}, seen: map[string]bool{}, last: map[string]int{}}
}

func (l *ledger) note(in map[string]bool, what string) {
	l.Lock()
	defer l.Unlock()
	in[what] = true
}

// see notes a message, the number of its producer's: of its key, one in five, none comes first after a later one.
func (l *ledger) see(producer, number int) {
	l.Lock()
	defer l.Unlock()
	what, key := fmt.Sprint(producer, "-", number), fmt.Sprint(producer, "-", number%5)
	if !l.seen[what] && number < l.last[key] {
		l.overtaken = append(l.overtaken, fmt.Sprintf("%s after %d", what, l.last[key]))
	}
	l.seen[what], l.last[key] = true, max(l.last[key], number)
}

func (l *ledger) lost() (lost []string) {
	l.Lock()
	defer l.Unlock()
	for what := range maps.Keys(l.kept) {
		if !l.seen[what] {
			lost = append(lost, what)
		}
	}
	slices.Sort(lost)
	return lost
}

// A server that is killed while messages and jobs are written and carried off loses none that it has confirmed.
func TestServerIsKilled(t *testing.T) {
	testseed.Soak(t)
	t.Parallel()
	for _, engine := range engines(t) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			m := testserver.StartMariaDB(t)
			s := openStore(t, m.URL, mysql.Options{Engine: engine})
			for _, err := range []error{s.Migrate(t.Context()), s.CreateOutbox(t.Context(), "orders"), s.CreateQueue(t.Context(), "jobs", penstock.FIFO)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			messages, jobs := newLedger(), newLedger()
			produce, stopProducing := context.WithCancel(t.Context())
			consume, stopConsuming := context.WithCancel(t.Context())
			defer stopConsuming()
			defer stopProducing()
			var producers, consumers sync.WaitGroup
			for p := range 2 {
				producers.Go(func() {
					for i := 0; produce.Err() == nil; i++ {
						what := fmt.Sprint(p, "-", i)
						if s.Publish(produce, "orders", penstock.Message{Key: fmt.Sprint(i % 5), Payload: []byte(what)}) == nil {
							messages.note(messages.kept, what)
						}
						if _, err := s.Queue("jobs").Enqueue(produce, penstock.NewJob{Payload: []byte(what)}); err == nil {
							jobs.note(jobs.kept, what)
						}
					}
				})
			}
			consumers.Go(func() { relayAll(consume, s, messages) })
			consumers.Go(func() { workAll(consume, s.Queue("jobs"), jobs) })
			for range 3 {
				for at := len(jobs.snapshot()); len(jobs.snapshot()) < at+50 && t.Context().Err() == nil; {
					time.Sleep(10 * time.Millisecond)
				}
				if err := m.Kill(); err != nil {
					t.Fatal(err)
				}
				if err := m.Start(); err != nil {
					t.Fatal(err)
				}
			}
			stopProducing()
			producers.Wait()
			for deadline := time.Now().Add(2 * time.Minute); len(messages.lost())+len(jobs.lost()) > 0 && time.Now().Before(deadline); {
				time.Sleep(20 * time.Millisecond)
			}
			stopConsuming()
			consumers.Wait()
			t.Logf("%d messages and %d jobs were confirmed", len(messages.kept), len(jobs.kept))
			if len(messages.overtaken) > 0 {
				t.Errorf("%d came after later ones of their keys: %.10q", len(messages.overtaken), messages.overtaken)
			}
			if lost := append(messages.lost(), jobs.lost()...); len(lost) > 0 || len(jobs.kept) < 150 {
				t.Errorf("%d were confirmed and did not come: %.10q", len(lost), lost)
			}
		})
	}
}

// snapshot lists the confirmed texts so far.
func (l *ledger) snapshot() []string {
	l.Lock()
	defer l.Unlock()
	return slices.Collect(maps.Keys(l.kept))
}

// relayAll fetches and settles, by a new source after each error.
func relayAll(ctx context.Context, s *mysql.Store, l *ledger) {
	for ctx.Err() == nil {
		src, err := s.Subscribe(ctx, driver.Subscribe{Outbox: "orders", Subscription: "s", Lease: time.Second})
		for err == nil && ctx.Err() == nil {
			var b driver.Batch
			if b, err = src.Fetch(ctx, driver.Limit{Messages: 100, Bytes: 1 << 20}); err != nil {
				break
			}
			for _, m := range b.Messages {
				var producer, number int
				_, _ = fmt.Sscanf(string(m.Payload), "%d-%d", &producer, &number)
				l.see(producer, number)
			}
			if len(b.Messages) > 0 {
				err = src.Settle(ctx, b.Number, driver.Settled{Batch: b})
			}
		}
		if src != nil {
			_ = src.Close(context.WithoutCancel(ctx))
		}
	}
}

// workAll claims and acks.
func workAll(ctx context.Context, q driver.Queue, l *ledger) {
	for ctx.Err() == nil {
		jobs, err := q.Claim(ctx, driver.Claim{Jobs: 20, Lease: 2 * time.Second})
		if err != nil {
			continue
		}
		for _, j := range jobs {
			l.note(l.seen, string(j.Payload))
			_, _ = q.Ack(ctx, j.Lease)
		}
	}
}
