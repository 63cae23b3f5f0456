package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/readback"
)

// open gives a phase a sink with a queue of its own, and a reader of that queue,
// nil where the sink cannot be read back. close removes both.
func (r *relayRun) open(ctx context.Context) (sink penstock.Sink, broker readback.Broker, close func() error, err error) {
	r.phases++
	url := r.SinkURL
	broker, err = readback.New(url, fmt.Sprintf("%s/%d", r.dir, r.phases), fmt.Sprintf("penstock_%s_%d", r.Outbox, r.phases))
	if err != nil {
		return nil, nil, nil, err
	}
	if broker != nil {
		url = broker.SinkURL()
	}
	if sink, err = r.OpenSink(url); err != nil {
		return nil, nil, nil, err
	}
	close = func() error {
		var failed error
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if broker != nil {
			failed = errors.Join(broker.Remove(ctx), broker.Close())
		}
		return errors.Join(failed, sink.Close(ctx))
	}
	if broker != nil {
		if err := broker.Open(ctx, sink); err != nil {
			return nil, nil, nil, errors.Join(err, close())
		}
	}
	return sink, broker, close, nil
}

// Senders and batches of the ceiling are the relay's defaults.
const (
	senders = 8
	batch   = 512
)

// brokerCeiling sends the same messages from memory through the same sink, with
// nothing to order, read or store.
func (r *relayRun) brokerCeiling(ctx context.Context) (rate float64, err error) {
	sink, _, close, err := r.open(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, close()) }()
	var (
		next   atomic.Int64
		failed atomic.Pointer[error]
		wg     sync.WaitGroup
	)
	if err := warmUp(ctx, sink); err != nil {
		return 0, err
	}
	prefix := fmt.Sprintf("%s-%d-", r.Outbox, r.phases) // about as long as a derived id
	start := time.Now()
	for range senders {
		wg.Go(func() {
			for failed.Load() == nil {
				first := int(next.Add(batch)) - batch
				if first >= r.Messages {
					return
				}
				msgs := r.messages(first, min(batch, r.Messages-first))
				for i := range msgs {
					msgs[i].ID = prefix + strconv.Itoa(first+i)
					msgs[i].Attempt, msgs[i].CreatedAt = 1, start
				}
				if err := errors.Join(sink.Send(ctx, msgs)...); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(r.Messages) / time.Since(start).Seconds(), nil
}

// warmUp waits until the sink is connected.
func warmUp(ctx context.Context, sink penstock.Sink) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for {
		err := errors.Join(sink.Send(ctx, []penstock.Message{{ID: fmt.Sprint("warm-", time.Now().UnixNano()), Topic: "bench", Attempt: 1, CreatedAt: time.Now()}})...)
		if err == nil || !penstock.IsUnavailable(err) || ctx.Err() != nil {
			return err
		}
	}
}

// readCeiling fetches the backlog and sends it nowhere.
func (r *relayRun) readCeiling(ctx context.Context) (float64, error) {
	// A reader along sees what is not reclaimed; what earlier rounds have
	// settled may be among it.
	src, err := r.Store.Subscribe(ctx, penstock.Subscribe{Outbox: r.Outbox, Subscription: "bench", Holder: "penstock bench", Ephemeral: true})
	if err != nil {
		return 0, err
	}
	defer func() { _ = src.Close(ctx) }()
	start, n := time.Now(), 0
	for {
		b, err := src.Fetch(ctx, penstock.Limit{Messages: 4096, Bytes: 8 << 20})
		if err != nil {
			return 0, err
		}
		if len(b.Messages) == 0 {
			return float64(n) / time.Since(start).Seconds(), nil
		}
		n += len(b.Messages)
	}
}

// drain runs the relay until the backlog is confirmed and settled. The rate is that
// of the confirms, as the ceiling's is.
func (r *relayRun) drain(ctx context.Context) (rate float64, err error) {
	sink, _, close, err := r.open(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, close()) }()
	if err := warmUp(ctx, sink); err != nil {
		return 0, err
	}
	count := &counter{want: int64(r.Messages), confirmed: make(chan time.Time, 1), settled: make(chan struct{})}
	usage := startUsage()
	start := time.Now()
	stop, err := r.startRelay(ctx, sink, count)
	if err != nil {
		return 0, err
	}
	select {
	case <-count.settled:
	case <-ctx.Done():
		return 0, errors.Join(ctx.Err(), stop())
	}
	took := (<-count.confirmed).Sub(start)
	cpu, rss := usage.stop()
	r.result.CPUSecondsPer100k = max(r.result.CPUSecondsPer100k, cpu.Seconds()/float64(r.Messages)*100_000)
	r.result.PeakRSSMB = max(r.result.PeakRSSMB, rss)
	if _, err := r.size(ctx); err != nil {
		return 0, errors.Join(err, stop())
	}
	return float64(r.Messages) / took.Seconds(), stop()
}

// counter is an observer that tells when all is confirmed, and when all is settled.
type counter struct {
	want               int64
	delivered, counted atomic.Int64
	confirmed          chan time.Time // has room for one
	settled            chan struct{}
}

func (c *counter) InFlight(int) {}

func (c *counter) Sent(delivered, _, _ int) {
	if reaches(&c.delivered, delivered, c.want) {
		c.confirmed <- time.Now()
	}
}

func (c *counter) Settled(n int) {
	if reaches(&c.counted, n, c.want) {
		close(c.settled)
	}
}

// reaches adds n and says whether that was what made it want or more.
func reaches(sum *atomic.Int64, n int, want int64) bool {
	total := sum.Add(int64(n))
	return total >= want && total-int64(n) < want
}

// caughtUp waits until the outbox is as small as it was, with the snapshot still
// pinned if it is.
func (r *relayRun) caughtUp(ctx context.Context) error {
	r.Progress("waiting for the outbox to shrink")
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := r.Store.Maintain(ctx, r.Outbox); err != nil {
			return err
		}
		size, err := r.size(ctx)
		if err != nil {
			return err
		}
		r.result.SizeAfter = size
		if size <= r.result.SizeFloor {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil // the figure says it
		}
	}
}
