//go:build unix

package relay

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// BenchmarkRelay measures the relay alone: messages in memory, and a sink that confirms at once.
// One op is one message.
func BenchmarkRelay(b *testing.B) {
	for _, keys := range []struct {
		name string
		n    int
	}{{"unkeyed", 0}, {"1key", 1}, {"1000keys", 1000}, {"distinct", 1 << 20}} {
		for _, inOrder := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/inorder=%v", keys.name, inOrder), func(b *testing.B) { benchmarkRelay(b, keys.n, inOrder) })
		}
	}
}

func benchmarkRelay(b *testing.B, keys int, inOrder bool) {
	source := &loop{total: b.N, settled: make(chan struct{}), messages: make([]penstock.Message, 1<<16)}
	payload := make([]byte, 200)
	for i := range source.messages {
		m := &source.messages[i]
		*m = penstock.Message{ID: fmt.Sprintf("orders-%d", i), Topic: "order.created", Payload: payload, Attempt: 1}
		if keys > 0 {
			m.Key = fmt.Sprintf("customer-%d", i%keys)
		}
	}
	r, err := New(source, "orders", "bench", discard(inOrder), Options{Logger: quiet()})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	start := cpuTime()
	result := make(chan error, 1)
	go func() { result <- r.Run(b.Context()) }()
	<-source.settled
	b.StopTimer()
	b.ReportMetric(float64(cpuTime()-start)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	r.Drain()
	if err := <-result; err != nil {
		b.Fatal(err)
	}
}

func (l *loop) Subscribe(context.Context, driver.Subscribe) (driver.Source, error) { return l, nil }
func (l *loop) Maintain(context.Context, string) error                             { return nil }

// loop is the Source of a Store that returns the same messages again and again, total of them in
// all.
type loop struct {
	messages   []penstock.Message
	total, got int
	number     uint64
	done       atomic.Int64
	settled    chan struct{} // closed when all are
}

func (s *loop) Fetch(_ context.Context, limit driver.Limit) (driver.Batch, error) {
	n := min(limit.Messages, s.total-s.got)
	if n == 0 {
		return driver.Batch{}, nil
	}
	from := s.got % len(s.messages)
	n = min(n, len(s.messages)-from)
	s.got += n
	s.number++
	return driver.Batch{Messages: s.messages[from : from+n], Number: s.number, More: s.got < s.total}, nil
}

func (s *loop) Settle(_ context.Context, _ uint64, settled ...driver.Settled) error {
	time.Sleep(2 * time.Millisecond) // how long a commit takes
	n := 0
	for _, t := range settled {
		n += len(t.Batch.Messages)
	}
	if s.done.Add(int64(n)) == int64(s.total) {
		close(s.settled)
	}
	return nil
}

func (s *loop) Renew(context.Context) error { return nil }
func (s *loop) Close(context.Context) error { return nil }

// discard is a sink that confirms everything; its value is KeepsOrder.
type discard bool

func (discard) Send(context.Context, []penstock.Message) []error { return nil }
func (discard) Close(context.Context) error                      { return nil }
func (d discard) KeepsOrder() bool                               { return bool(d) }

// cpuTime is the CPU time that this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
