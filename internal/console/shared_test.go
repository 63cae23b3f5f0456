package console_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/console"
)

// counting is a store that counts how often groups are read, and lets a test keep a reader waiting.
type counting struct {
	store
	groups atomic.Int32
	hold   atomic.Pointer[chan struct{}]
}

func (c *counting) QueueGroups(ctx context.Context, queue, after string, most int) ([]penstock.GroupStatus, error) {
	c.groups.Add(1)
	if hold := c.hold.Load(); hold != nil {
		<-*hold
	}
	return c.store.QueueGroups(ctx, queue, after, most)
}

// However many look at the same, it is read once, until something is done.
func TestManyLookAtOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		fill(t, s)
		c := &counting{store: s}
		hold := make(chan struct{})
		c.hold.Store(&hold)
		d := serveWith(t, s, func(o *console.Options) { o.Store = c })
		var all sync.WaitGroup
		began := time.Now()
		for range 20 {
			all.Go(func() {
				if code, text := d.ask("r", "GET", "/api/v1/queues/mails/groups", ""); code != 200 {
					t.Errorf("%d %s", code, text)
				}
			})
		}
		for c.groups.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		time.AfterFunc(50*time.Millisecond, func() { close(hold) })
		all.Wait()
		if n, most := int(c.groups.Load()), 1+int(time.Since(began)/time.Second); n > most {
			t.Errorf("20 who ask for groups have them read %d times in %v", n, time.Since(began))
		}
		// What was done is seen at once.
		before := c.groups.Load()
		if code, text := d.ask("o", "POST", "/api/v1/queues/mails/dead/discard", `{"group": "red"}`); code != 200 {
			t.Fatalf("%d %s", code, text)
		}
		d.ask("r", "GET", "/api/v1/queues/mails/groups", "")
		if c.groups.Load() == before {
			t.Error("after an action an old answer is given")
		}
	})
}
