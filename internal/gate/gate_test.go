package gate

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/penstock/penstock"
)

func TestNothingBeginsOnceClosed(t *testing.T) {
	var g Gate
	if g.Closed() {
		t.Fatal("a new gate is closed")
	}
	g.Enter(nil).Leave()
	idle, first := g.Close()
	if !first || !g.Closed() || !ended(idle) {
		t.Errorf("first %v, closed %v, idle %v; want all true", first, g.Closed(), ended(idle))
	}
	if g.Enter(nil) != nil {
		t.Error("a closed gate lets one in")
	}
	again, first := g.Close()
	if first || again != idle {
		t.Error("the second Close passes for the first")
	}
}

func TestCloseIsIdleAfterTheLast(t *testing.T) {
	var g Gate
	a, b := g.Enter(nil), g.Enter(nil)
	idle, _ := g.Close()
	a.Leave()
	if ended(idle) {
		t.Error("idle while one runs")
	}
	b.Leave()
	if !ended(idle) {
		t.Error("not idle after the last has left")
	}
}

func TestCancelAll(t *testing.T) {
	var g Gate
	before, cancel := context.WithCancel(t.Context())
	g.Enter(cancel).Leave()
	running, cancelRunning := context.WithCancel(t.Context())
	defer cancelRunning()
	p, other := g.Enter(cancelRunning), g.Enter(nil)
	idle, _ := g.Close()
	g.CancelAll()
	if running.Err() == nil || before.Err() != nil {
		t.Errorf("cancelled: running %v, left before %v", running.Err(), before.Err())
	}
	if ended(idle) {
		t.Error("idle, but nothing has left yet")
	}
	p.Leave()
	other.Leave()
	if !ended(idle) {
		t.Error("not idle")
	}
	cancel()
}

// A Send that CancelAll ends says that the sink is closed, and keeps the verdicts that are not about the connection.
func TestSendThatIsCancelled(t *testing.T) {
	var g Gate
	closed, refused := penstock.Unavailable(penstock.ErrClosed), errors.New("refused")
	errs := g.Send(t.Context(), make([]penstock.Message, 3), closed, func(ctx context.Context, errs []error) {
		g.Close()
		g.CancelAll()
		errs[1], errs[2] = refused, penstock.Unavailable(ctx.Err())
	})
	if want := []error{nil, refused, closed}; !slices.Equal(errs, want) {
		t.Errorf("the verdicts are %v, want %v", errs, want)
	}
	if errs := g.Send(t.Context(), make([]penstock.Message, 1), closed, nil); !slices.Equal(errs, []error{closed}) {
		t.Errorf("a closed gate answers %v", errs)
	}
}

// An operation that entered before Close is waited for, whatever the timing.
func TestEnterMeetsClose(t *testing.T) {
	for range 1000 {
		var (
			g    Gate
			all  sync.WaitGroup
			left = make(chan struct{}, 4)
			in   = make(chan bool, 4)
		)
		for range cap(in) {
			all.Go(func() {
				p := g.Enter(nil)
				in <- p != nil
				if p != nil {
					left <- struct{}{}
					p.Leave()
				}
			})
		}
		idle, _ := g.Close()
		<-idle
		done := len(left)
		all.Wait()
		entered := 0
		for range cap(in) {
			if <-in {
				entered++
			}
		}
		if done != entered {
			t.Fatalf("idle when %d of %d that got in had left", done, entered)
		}
	}
}

func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
