package sqlite_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/work"
)

// cpu is the time of the processor that this process has taken.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The cost of a job with a handler that does nothing, and of one that is claimed and acked by hand; each of 10,000.
func BenchmarkJobs(b *testing.B) {
	const jobs = 10_000
	for _, keyed := range []bool{false, true} {
		name := map[bool]string{false: "plain", true: "keyed"}[keyed]
		fill := func(b *testing.B) driver.Queue {
			_, _, q := newQueue(b, penstock.FIFO)
			for n := range jobs / 1000 {
				batch := make([]penstock.NewJob, 1000)
				for i := range batch {
					batch[i].Payload = bytes.Repeat([]byte{'x'}, 200)
					if keyed {
						batch[i].Key = string(rune('a'+n)) + time.Duration(i).String()
					}
				}
				if _, err := q.Enqueue(b.Context(), batch...); err != nil {
					b.Fatal(err)
				}
			}
			return q
		}
		b.Run("work/"+name, func(b *testing.B) {
			var took time.Duration
			for b.Loop() {
				q := fill(b)
				began := cpu()
				ctx, stop := context.WithCancel(b.Context())
				var n atomic.Int64
				if err := work.Run(ctx, q, func(context.Context, penstock.Job) error {
					if n.Add(1) == jobs {
						stop()
					}
					return nil
				}, work.Options{Concurrency: 10, Logger: slog.New(slog.DiscardHandler)}); err != nil {
					b.Fatal(err)
				}
				took += cpu() - began
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*jobs), "cpu-ns/job")
		})
		for _, size := range []int{1, 100} {
			b.Run("dequeue/"+name+"/"+map[int]string{1: "1", 100: "100"}[size], func(b *testing.B) {
				var took time.Duration
				all := jobs / 10 * min(10, size)
				for b.Loop() {
					q := fill(b)
					began := cpu()
					for range all / size {
						got, err := q.Claim(b.Context(), driver.Claim{Jobs: size, Lease: time.Hour})
						if err != nil || len(got) != size {
							b.Fatal(len(got), err)
						}
						leases := make([]int64, size)
						for i := range got {
							leases[i] = got[i].Lease
						}
						if _, err := q.Ack(b.Context(), leases...); err != nil {
							b.Fatal(err)
						}
					}
					took += cpu() - began
				}
				b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*all), "cpu-ns/job")
			})
		}
	}
}
