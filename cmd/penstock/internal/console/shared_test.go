package console_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/driver"
)

// counting is a store that counts how often groups are read, and lets a test make a reader wait.
type counting struct {
	store
	groups atomic.Int32
	hold   chan struct{}
}

func (c *counting) QueueGroups(ctx context.Context, queue, after string, most int) ([]admin.GroupStatus, error) {
	c.groups.Add(1)
	<-c.hold
	return c.store.QueueGroups(ctx, queue, after, most)
}

// However many clients look at the same page, it is read once, until something is done.
func TestManyLookAtOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		fill(t, s)
		c := &counting{store: s, hold: make(chan struct{})}
		d := serveWith(t, s, func(o *console.Options) { o.Store = c })
		var all sync.WaitGroup
		began := time.Now()
		for range cap(d.asked) {
			all.Go(func() {
				if code, text := d.ask("r", "GET", "/api/v1/queues/mails/groups", ""); code != 200 {
					t.Errorf("%d %s", code, text)
				}
			})
		}
		for range cap(d.asked) {
			<-d.asked
		}
		close(c.hold)
		all.Wait()
		if n, most := int(c.groups.Load()), 1+int(time.Since(began)/time.Second); n > most {
			t.Errorf("20 who ask for groups have them read %d times in %v", n, time.Since(began))
		}
		// The effects of an action are visible at once.
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

// The table of groups shows limits and holds, if there are any.
func TestLimitsOfGroups(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		must(t, s.CreateQueue(t.Context(), "mails", penstock.FIFO))
		_, err := s.DriverQueue("mails").Enqueue(t.Context(), penstock.NewJob{Group: "free"}, penstock.NewJob{Group: "held"}, penstock.NewJob{Group: "limited"})
		must(t, err)
		d := serve(t, s)
		if code, text := d.ask("r", "GET", "/queues/mails", ""); code != 200 || strings.Contains(string(text), `data-label="Limits"`) {
			t.Fatalf("without limits: %d %s", code, text)
		}
		groups := s.(driver.GroupStore)
		must(t, groups.SetGroup(t.Context(), "mails", penstock.GroupPolicy{Group: "limited", MaxRunning: 5, Rate: penstock.Rate{Jobs: 60, Per: time.Minute}}))
		must(t, groups.HoldGroup(t.Context(), "mails", "held", time.Hour, "answered <429>"))
		status, err := s.QueueGroups(t.Context(), "mails", "", 10)
		must(t, err)
		until := status[slices.IndexFunc(status, func(g admin.GroupStatus) bool { return g.Group == "held" })].Limits.Until
		code, text := serve(t, s).ask("r", "GET", "/queues/mails", "")
		for _, want := range []string{
			`<th scope="col">Limits</th>`, `<td data-label="Limits">–</td>`,
			`<td data-label="Limits">held until ` + until.UTC().Format("2006-01-02 15:04:05") + ` UTC: answered &lt;429&gt;</td>`,
			`<td data-label="Limits">5 at a time<br>60 in 1m0s, 1 may start now</td>`,
		} {
			if code != 200 || !strings.Contains(string(text), want) {
				t.Errorf("%d, without %q: %s", code, want, text)
			}
		}
	})
}

// A queue shows its own running jobs, however many jobs of another have been running for longer.
func TestRunningOfABusyNeighbour(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		for queue, jobs := range map[string]int{"busy": 1100, "idle": 1} {
			must(t, s.CreateQueue(t.Context(), queue, penstock.FIFO))
			_, err := s.DriverQueue(queue).Enqueue(t.Context(), make([]penstock.NewJob, jobs)...)
			must(t, err)
		}
		for _, queue := range []string{"busy", "idle"} {
			for claimed := 1; claimed > 0; {
				some, err := s.DriverQueue(queue).Claim(t.Context(), driver.Claim{Jobs: 100, Lease: time.Minute, Worker: "of " + queue})
				must(t, err)
				claimed = len(some)
			}
		}
		d := serve(t, s)
		for queue, want := range map[string]int{"busy": 1000, "idle": 1} {
			code, text := d.ask("r", "GET", "/api/v1/queues/"+queue+"/running", "")
			if n := strings.Count(string(text), `"worker":"of `+queue+`"`); code != 200 || n != want {
				t.Errorf("%s: %d, %d of its own run, want %d: %.200s", queue, code, n, want, text)
			}
		}
	})
}
