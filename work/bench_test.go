package work_test

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/sqlite"
	"github.com/penstock/penstock/work"
)

// cpu is the time of the processor that this process has taken.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The processor's time of a job, from its claim to its end, in the worker and in SQLite. Jobs without kinds have one handler. Those of three
// kinds have one handler, or each kind has one.
func BenchmarkKinds(b *testing.B) {
	const jobs = 10_000
	for _, c := range []struct {
		name          string
		kinds, byKind bool
	}{{"unused", false, false}, {"one-handler", true, false}, {"by-kind", true, true}} {
		b.Run(c.name, func(b *testing.B) {
			var took time.Duration
			for b.Loop() {
				took += workOnKinds(b, jobs, c.kinds, c.byKind)
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*jobs), "cpu-ns/job")
		})
	}
}

func workOnKinds(b *testing.B, jobs int64, kinds, byKind bool) time.Duration {
	b.Helper()
	store, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "app.db"), sqlite.Options{})
	check(err)
	defer func() { _ = store.Close() }()
	check(store.Migrate(b.Context()))
	check(store.CreateQueue(b.Context(), "mails", penstock.FIFO))
	names := []string{"welcome", "reminder", "digest"}
	batch := make([]penstock.NewJob, 1000)
	for i := range batch {
		batch[i].Payload = bytes.Repeat([]byte{'x'}, 200)
		if kinds {
			batch[i].Kind = names[i%len(names)]
		}
	}
	for range jobs / 1000 {
		_, err := store.Queue("mails").Enqueue(b.Context(), batch...)
		check(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	var n atomic.Int64
	h := func(context.Context, penstock.Job) error {
		if n.Add(1) == jobs {
			stop()
		}
		return nil
	}
	if byKind {
		var mux work.Mux
		for _, name := range names {
			mux.Handle(name, h)
		}
		h = mux.Handler()
	}
	began := cpu()
	check(work.Run(ctx, store.Queue("mails"), h, work.Options{Logger: slog.New(slog.DiscardHandler)}))
	return cpu() - began
}

// The choice of the handler by the kind, which is all that handlers of three kinds add to each job. It is a call of some ns, so that it can also be compared
// with BenchmarkKinds on a machine that is busy.
func BenchmarkMux(b *testing.B) {
	h := func(context.Context, penstock.Job) error { return nil }
	var mux work.Mux
	names := []string{"welcome", "reminder", "digest"}
	jobs := make([]penstock.Job, len(names))
	for i, name := range names {
		mux.Handle(name, h)
		jobs[i].Headers = map[string]string{penstock.HeaderKind: name}
	}
	for name, handler := range map[string]work.Handler{"one-handler": h, "by-kind": mux.Handler()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				check(handler(b.Context(), jobs[i%len(jobs)]))
			}
		})
	}
}
