package work_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/work"
)

// A handler that first uses its context late still sees what has happened, also in contexts derived from it.
func TestWorkContextLookedAtLate(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(1)
		kept := make(chan context.Context, 1)
		_, stop := begin(t, q, func(ctx context.Context, _ penstock.Job) error {
			time.Sleep(time.Minute)
			child, cancel := context.WithCancel(context.WithValue(ctx, key{}, "mine"))
			defer cancel()
			for of, c := range map[string]context.Context{"the context": ctx, "one derived from it": child} {
				select {
				case <-c.Done():
				default:
					t.Errorf("%s goes on", of)
				}
				if err := context.Cause(c); !errors.Is(c.Err(), context.Canceled) || !errors.Is(err, penstock.ErrLeaseLost) {
					t.Errorf("%s ended because of %v, want ErrLeaseLost", of, err)
				}
			}
			if child.Value(key{}) != "mine" || ctx.Value(key{}) != nil {
				t.Errorf("values are %v and %v", child.Value(key{}), ctx.Value(key{}))
			}
			kept <- ctx
			return nil
		}, work.Options{Lease: 30 * time.Second})
		time.Sleep(time.Second)
		q.lose()
		<-kept
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A context ends with its handler, even if it is used for the first time afterwards.
func TestWorkContextEndsWithTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(2)
		kept := make(chan context.Context, 2)
		_, stop := begin(t, q, func(ctx context.Context, job penstock.Job) error {
			if job.ID == 1 && ctx.Err() != nil {
				t.Errorf("the context has ended: %v", context.Cause(ctx))
			}
			kept <- ctx
			return nil
		}, work.Options{Concurrency: 1})
		for range 2 {
			ctx := <-kept
			synctest.Wait()
			if !errors.Is(context.Cause(ctx), context.Canceled) {
				t.Errorf("the context of a handler that has returned says %v", context.Cause(ctx))
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// The payload of a job is freed although another job of its claim takes long.
func TestWorkKeepsNoPayloads(t *testing.T) {
	q := newFakeQueue(0)
	collected := make(chan struct{})
	func() {
		large := make([]byte, 1<<20)
		runtime.AddCleanup(&large[0], func(done chan struct{}) { close(done) }, collected)
		q.waiting = []penstock.Job{{ID: 1, Payload: large}, {ID: 2}}
	}()
	ended := make(chan struct{})
	_, stop := begin(t, q, func(_ context.Context, job penstock.Job) error {
		if job.ID == 2 {
			<-ended
		}
		return nil
	}, work.Options{})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		select {
		case <-collected:
		default:
			if time.Now().Before(deadline) {
				continue
			}
			t.Error("the payload of a job that is done is kept")
		}
		break
	}
	close(ended)
	if err := stop(); err != nil {
		t.Error(err)
	}
}
