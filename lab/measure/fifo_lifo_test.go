package measure

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
)

func checkCurve(t *testing.T, who string, c Curve) {
	t.Helper()
	if c.Enqueued != c.Dequeued+c.Left || c.Dequeued == 0 || c.JobsPerSecond <= 0 || c.SizePeak == 0 {
		t.Errorf("%s: got %+v", who, c)
	}
	if c.FirstP50MS > c.FirstP99MS || c.LastP50MS > c.LastP99MS {
		t.Errorf("%s: a median above its p99: %+v", who, c)
	}
	if cpu := c.CPU; cpu.Cores < 1 || cpu.Client <= 0 || cpu.Client > float64(cpu.Cores)+0.5 {
		t.Errorf("%s: CPU %+v", who, cpu)
	}
	if len(c.Intervals) == 0 || !slices.IsSortedFunc(c.Intervals, func(a, b Interval) int { return int(a.At*1000) - int(b.At*1000) }) {
		t.Fatalf("%s: intervals %+v", who, c.Intervals)
	}
	last, noted := 0.0, 0.0
	for _, i := range c.Intervals {
		noted += i.PerSecond * (i.At - last)
		last = i.At
	}
	// A transaction may end after the run has.
	if noted > float64(c.Dequeued)+0.5 || noted < float64(c.Dequeued-30) {
		t.Errorf("%s: the intervals have %.1f jobs of %d", who, noted, c.Dequeued)
	}
}

func TestFifoLifo(t *testing.T) {
	for _, c := range []FifoLifoConfig{
		{Order: penstock.FIFO, Mode: ModeCall, Workers: 10, Preload: 1000, Duration: time.Minute},
		{Order: penstock.LIFO, Preload: 2000, Rate: 500, Arrivals: true, Duration: 2 * time.Second, Mode: ModeTx, Workers: 3, Payload: 50},
		{Order: penstock.LIFO, Mode: ModeCall, Workers: 10, Preload: 500, Arrivals: true, Duration: 2 * time.Second, DequeueRate: 400},
	} {
		t.Run(string(c.Order)+c.Mode, func(t *testing.T) {
			c.Setup = database(t)
			c.Pin, c.Alone = true, c.DequeueRate > 0
			r, err := FifoLifo(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			checkCurve(t, "Penstock", r.Curve)
			if c.Alone {
				if r.Baseline.Dequeued != 0 || len(r.Lines()) != 1 || r.Enqueued <= int64(c.Preload) {
					t.Errorf("got %+v", r)
				}
				return
			}
			checkCurve(t, "hand-written", r.Baseline)
			if r.Ratio <= 0 || len(r.Lines()) != 2 {
				t.Errorf("got %+v", r)
			}
			if all := r.Drained && r.Baseline.Drained; !c.Arrivals && (!all || r.Left != 0 || r.Dequeued != 1000 || r.Baseline.Dequeued != 1000 || r.Seconds >= 60) {
				t.Errorf("not drained: %+v", r)
			}
			if c.Arrivals && (r.Enqueued <= int64(c.Preload) || r.Baseline.Enqueued <= int64(c.Preload)) {
				t.Error("nothing arrived")
			}
		})
	}
}

func TestInterruptRemoves(t *testing.T) {
	c := FifoLifoConfig{Setup: database(t), Order: penstock.FIFO, Mode: ModeCall, Workers: 10, Preload: 5000, Arrivals: true, Duration: time.Minute}
	ctx, cancel := context.WithCancel(t.Context())
	c.Progress = func(text string) {
		if strings.Contains(text, "dequeue for") {
			cancel()
		}
	}
	if _, err := FifoLifo(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A worker that gets a job twice, or never, is found.
func TestWrongJobsAreFound(t *testing.T) {
	db := database(t)
	cfg := FifoLifoConfig{Setup: db, Order: penstock.FIFO, Mode: ModeCall, Preload: 300, Workers: 1, Duration: time.Minute}
	c := penstockQueue(db, penstock.FIFO, ModeCall)
	one := c.one
	c.one = func(s *session) (int64, bool, error) {
		id, ok, err := one(s)
		return id / 2, ok, err
	}
	_, err := cfg.measure(t.Context(), c)
	var wrong *CheckError
	if !errors.As(err, &wrong) || wrong.Check.Duplicates < 149 {
		t.Errorf("got %v, want a CheckError", err)
	}
}

func TestFifoLifoRefuses(t *testing.T) {
	cfg := with(DefaultFifoLifo, func(c *FifoLifoConfig) { c.Mode = ModeCarried })
	if _, err := FifoLifo(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "plain tables") {
		t.Errorf("got %v", err)
	}
}
