package sqlite_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/sqlite"
)

// The messages of every benchmark: 200 bytes of payload and a traceparent.
func benchMessages(n int) []penstock.Message {
	msgs := make([]penstock.Message, n)
	for i := range msgs {
		msgs[i] = penstock.Message{
			Key: "N14228", Topic: "flight.departed", Payload: bytes.Repeat([]byte{'x'}, 200),
			Headers: map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		}
	}
	return msgs
}

func benchStore(b *testing.B, backlog int) (*sqlite.Store, string) {
	path := filepath.Join(b.TempDir(), "app.db")
	s := open(b, path)
	ctx := context.Background()
	if err := s.Migrate(ctx); err != nil {
		b.Fatal(err)
	}
	if err := s.CreateOutbox(ctx, "orders"); err != nil {
		b.Fatal(err)
	}
	if backlog > 0 {
		if err := s.Publish(ctx, "orders", benchMessages(backlog)...); err != nil {
			b.Fatal(err)
		}
	}
	return s, path
}

// One message per business transaction, durable.
func BenchmarkCommit(b *testing.B) {
	s, path := benchStore(b, 0)
	app, err := sqlite.OpenDB(path)
	if err != nil {
		b.Fatal(err)
	}
	defer app.Close()
	msgs := benchMessages(1)
	for b.Loop() {
		tx, err := app.Begin()
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Outbox("orders").PublishTx(b.Context(), tx, msgs...); err != nil {
			b.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			b.Fatal(err)
		}
	}
}

// A thousand messages in one transaction.
func BenchmarkPublish1000(b *testing.B) {
	s, _ := benchStore(b, 0)
	msgs := benchMessages(1000)
	for b.Loop() {
		if err := s.Publish(b.Context(), "orders", msgs...); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "msgs/s")
}

const benchBacklog = 100_000

// Pages of 2,000 through a backlog of 100,000, without settling.
func BenchmarkFetch(b *testing.B) {
	s, _ := benchStore(b, benchBacklog)
	b.ReportAllocs()
	read := 0
	for b.Loop() {
		read += drain(b, s, driver.Subscribe{Outbox: "orders", Ephemeral: true}, nil)
	}
	b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "msgs/s")
}

// The same with every page settled.
func BenchmarkFetchSettle(b *testing.B) {
	s, _ := benchStore(b, benchBacklog)
	b.ReportAllocs()
	read := 0
	for i := 0; b.Loop(); i++ {
		read += drain(b, s, driver.Subscribe{Outbox: "orders", Subscription: string(rune('a' + i))},
			func(src driver.Source, batch driver.Batch) error {
				return src.Settle(b.Context(), batch.Number, driver.Settled{Batch: batch})
			})
	}
	b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "msgs/s")
}

func drain(b *testing.B, s *sqlite.Store, req driver.Subscribe, each func(driver.Source, driver.Batch) error) int {
	src, err := s.Subscribe(b.Context(), req)
	if err != nil {
		b.Fatal(err)
	}
	defer src.Close(b.Context())
	read := 0
	for {
		batch, err := src.Fetch(b.Context(), driver.Limit{Messages: 2000, Bytes: 16 << 20})
		if err != nil {
			b.Fatal(err)
		}
		if len(batch.Messages) == 0 {
			return read
		}
		read += len(batch.Messages)
		if each == nil {
			continue
		}
		if err := each(src, batch); err != nil {
			b.Fatal(err)
		}
	}
}

// Messages are published, carried by one or two subscriptions in pages of 2,000, and reclaimed. The metric is the processor's time.
func BenchmarkRelay(b *testing.B) {
	for _, c := range []struct{ subscriptions, page int }{{1, 2000}, {2, 2000}, {1, 20}} {
		b.Run(fmt.Sprintf("subscriptions=%d/page=%d", c.subscriptions, c.page), func(b *testing.B) {
			backlog := benchBacklog
			if c.page < 100 {
				backlog /= 10
			}
			s, _ := benchStore(b, 0)
			var sources []driver.Source
			for i := range c.subscriptions {
				src, err := s.Subscribe(b.Context(), driver.Subscribe{Outbox: "orders", Subscription: string(rune('a' + i))})
				if err != nil {
					b.Fatal(err)
				}
				sources = append(sources, src)
			}
			var publish, relay time.Duration
			for b.Loop() {
				began := processorTime(b)
				for range backlog / 1000 {
					if err := s.Publish(b.Context(), "orders", benchMessages(1000)...); err != nil {
						b.Fatal(err)
					}
				}
				published := processorTime(b)
				publish += published - began
				for _, src := range sources {
					for read := 0; read < backlog; {
						batch, err := src.Fetch(b.Context(), driver.Limit{Messages: c.page, Bytes: 16 << 20})
						if err != nil {
							b.Fatal(err)
						}
						if err := src.Settle(b.Context(), batch.Number, driver.Settled{Batch: batch}); err != nil {
							b.Fatal(err)
						}
						read += len(batch.Messages)
					}
				}
				if err := s.Maintain(b.Context(), "orders"); err != nil {
					b.Fatal(err)
				}
				relay += processorTime(b) - published
			}
			n := float64(b.N) * float64(backlog)
			b.ReportMetric(float64(publish.Nanoseconds())/n, "cpu-ns/publish")
			b.ReportMetric(float64(relay.Nanoseconds())/n/float64(c.subscriptions), "cpu-ns/relay")
		})
	}
}

// processorTime is what this process has used so far.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// The cost of an idle relay per Fetch.
func BenchmarkIdleFetch(b *testing.B) {
	s, _ := benchStore(b, 0)
	src, err := s.Subscribe(b.Context(), driver.Subscribe{Outbox: "orders", Subscription: "idle"})
	if err != nil {
		b.Fatal(err)
	}
	defer src.Close(b.Context())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := src.Fetch(b.Context(), driver.Limit{Messages: 2000, Bytes: 16 << 20}); err != nil {
			b.Fatal(err)
		}
	}
}

// Everything is refused, parked, and delivered when it comes back: one key per
// message, a thousand keys, and a single one.
func BenchmarkParkAndDrain(b *testing.B) {
	for _, keys := range []int{1, 1000, benchBacklog} {
		b.Run(fmt.Sprint("keys=", keys), func(b *testing.B) {
			var parked, drained time.Duration
			for b.Loop() {
				b.StopTimer()
				s, path := benchStore(b, 0)
				msgs := benchMessages(benchBacklog)
				for i := range msgs {
					msgs[i].Key = fmt.Sprint(i % keys)
				}
				if err := s.Publish(b.Context(), "orders", msgs...); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				began := processorTime(b)
				refused := []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "refused"}}
				left := benchBacklog
				drain(b, s, driver.Subscribe{Outbox: "orders", Subscription: "s"}, func(src driver.Source, batch driver.Batch) error {
					st := driver.Settled{Batch: batch}
					if left > 0 {
						left -= len(batch.Messages)
						st.Verdicts = make([]driver.Verdict, len(batch.Messages))
						for i := range st.Verdicts {
							st.Verdicts[i] = driver.Verdict{Outcome: driver.Parked, RetryIn: time.Hour}
							if batch.Messages[i].Seq <= int64(keys) { // the others stand behind
								st.Verdicts[i].Failures = refused
							}
						}
					}
					return storetest.Settle(b.Context(), src, st)
				})
				parked += processorTime(b) - began
				app := openApp(b, path)
				mustExec(b, app, `update penstock_entries set due = 1`)
				began = processorTime(b)
				if n := drain(b, s, driver.Subscribe{Outbox: "orders", Subscription: "s"}, func(src driver.Source, batch driver.Batch) error {
					return src.Settle(b.Context(), batch.Number, driver.Settled{Batch: batch})
				}); n != benchBacklog {
					b.Fatalf("%d came back", n)
				}
				drained += processorTime(b) - began
			}
			b.ReportMetric(float64(parked.Nanoseconds())/float64(b.N)/benchBacklog, "cpu-ns/parked")
			b.ReportMetric(float64(drained.Nanoseconds())/float64(b.N)/benchBacklog, "cpu-ns/drained")
		})
	}
}

// Jobs are claimed and acked, 1 or 100 at a time, while as many are enqueued; the
// backlog that waits for one key, or is delayed, must not matter.
func BenchmarkClaimAck(b *testing.B) {
	for _, backlog := range []int{0, 100_000} {
		for _, n := range []int{1, 100} {
			b.Run(fmt.Sprintf("backlog=%d/jobs=%d", backlog, n), func(b *testing.B) {
				_, _, q := newQueue(b, penstock.FIFO)
				ctx := b.Context()
				waiting := make([]penstock.NewJob, 0, 2*backlog)
				for range backlog {
					waiting = append(waiting, penstock.NewJob{Key: "hot", Group: "g"}, penstock.NewJob{NotBefore: time.Now().Add(time.Hour)})
				}
				if _, err := q.Enqueue(ctx, waiting...); err != nil {
					b.Fatal(err)
				}
				jobs := make([]penstock.NewJob, n)
				for i := range jobs {
					jobs[i] = penstock.NewJob{Payload: bytes.Repeat([]byte{'x'}, 200)}
				}
				for b.Loop() {
					if _, err := q.Enqueue(ctx, jobs...); err != nil {
						b.Fatal(err)
					}
					claimed, err := q.Claim(ctx, driver.Claim{Jobs: n, Lease: time.Hour})
					if err != nil || len(claimed) != n {
						b.Fatal(len(claimed), err)
					}
					leases := make([]int64, n)
					for i := range claimed {
						leases[i] = claimed[i].Lease
					}
					if _, err := q.Ack(ctx, leases...); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N)*float64(n)/b.Elapsed().Seconds(), "jobs/s")
			})
		}
	}
}
