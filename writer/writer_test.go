package writer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/writer"
)

// gate is a store that commits when the test allows it, and notes how.
type gate struct {
	begin, end chan struct{} // one of each per commit, if they are set
	refuse     func(penstock.Message) error
	outage     error

	mu      sync.Mutex
	commits [][]string // payloads
}

func (g *gate) Publish(ctx context.Context, _ string, msgs ...penstock.Message) error {
	if g.begin != nil {
		g.begin <- struct{}{}
		select {
		case <-g.end:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if g.outage != nil {
		return g.outage
	}
	var texts []string
	for _, m := range msgs {
		if g.refuse != nil {
			if err := g.refuse(m); err != nil {
				return err
			}
		}
		texts = append(texts, string(m.Payload))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.commits = append(g.commits, texts)
	return nil
}

var errRefused = errors.New("refused")

func (g *gate) RefusesContent(err error) bool { return errors.Is(err, errRefused) }

func (g *gate) want(t *testing.T, commits ...[]string) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if fmt.Sprint(g.commits) != fmt.Sprint(commits) {
		t.Errorf("commits %v, want %v", g.commits, commits)
	}
}

func gated() *gate { return &gate{begin: make(chan struct{}), end: make(chan struct{})} }

func text(s string) penstock.Message { return penstock.Message{Key: "k", Payload: []byte(s)} }

// call is a call by a separate caller.
type call struct {
	err  error
	done chan struct{}
}

// calls are made in order.
type calls struct {
	w   *writer.Writer
	all []*call
}

func (c *calls) publish(ctx context.Context, payload string) {
	made := &call{done: make(chan struct{})}
	c.all = append(c.all, made)
	go func() {
		defer close(made.done)
		made.err = c.w.Publish(ctx, "orders", text(payload))
	}()
	synctest.Wait()
}

func (c *calls) returned(i int) bool {
	select {
	case <-c.all[i].done:
		return true
	default:
		return false
	}
}

// err is what a call returns.
func (c *calls) err(i int) error {
	<-c.all[i].done
	return c.all[i].err
}

func TestWriterSharesCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gated()
		c := &calls{w: writer.New(g, writer.Options{})}
		for _, p := range []string{"1", "2", "3"} {
			c.publish(t.Context(), p)
		}
		<-g.begin // of the first call, which waited for no other
		if c.returned(0) {
			t.Error("a call has returned before its commit")
		}
		g.end <- struct{}{}
		<-g.begin
		synctest.Wait()
		if !c.returned(0) || c.returned(1) || c.returned(2) {
			t.Error("those return whose commit has ended, and no others")
		}
		g.end <- struct{}{}
		if err := c.w.Close(t.Context()); err != nil {
			t.Error(err)
		}
		g.want(t, []string{"1"}, []string{"2", "3"})
		if s := c.w.Stats(); s.Calls != 3 || s.Rows != 3 || s.Commits != 2 || s.Lost != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestWriterWaitsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{}
		c := &calls{w: writer.New(g, writer.Options{Delay: time.Second, Rows: 3})}
		c.publish(t.Context(), "1")
		time.Sleep(time.Second / 2)
		c.publish(t.Context(), "2")
		g.want(t)
		time.Sleep(time.Second / 2)
		synctest.Wait()
		g.want(t, []string{"1", "2"})
		for _, p := range []string{"3", "4", "5"} { // full
			c.publish(t.Context(), p)
		}
		g.want(t, []string{"1", "2"}, []string{"3", "4", "5"})
		c.publish(t.Context(), "6")
		began := time.Now()
		if err := c.w.Flush(t.Context()); err != nil || time.Since(began) > 0 {
			t.Errorf("Flush after %s: %v", time.Since(began), err)
		}
		g.want(t, []string{"1", "2"}, []string{"3", "4", "5"}, []string{"6"})
	})
}

func TestWriterHoldsCallersBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gated()
		c := &calls{w: writer.New(g, writer.Options{Rows: 2})}
		ctx, cancel := context.WithCancel(t.Context())
		for _, p := range []string{"1", "2", "3"} { // one is under way, two wait for it
			c.publish(t.Context(), p)
		}
		c.publish(ctx, "held back")
		c.publish(t.Context(), "4")
		blocked := make(chan error)
		go func() { blocked <- c.w.PublishUnconfirmed(t.Context(), "orders", text("5")) }()
		synctest.Wait()
		cancel()
		if !errors.Is(c.err(3), context.Canceled) {
			t.Errorf("got %v", c.err(3))
		}
		if s := c.w.Stats(); s.Calls != 3 {
			t.Errorf("%d calls were taken", s.Calls)
		}
		for range 3 {
			<-g.begin
			g.end <- struct{}{}
		}
		if err := <-blocked; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		g.want(t, []string{"1"}, []string{"2", "3"}, []string{"4", "5"})
	})
}

func TestWriterCallersGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gated()
		c := &calls{w: writer.New(g, writer.Options{})}
		ctx, cancel := context.WithCancel(t.Context())
		c.publish(ctx, "under way")
		<-g.begin
		c.publish(ctx, "waits")
		c.publish(t.Context(), "stays")
		cancel()
		if !errors.Is(c.err(0), context.Canceled) || c.err(0).Error() == context.Canceled.Error() {
			t.Errorf("under way: %v, want that it may succeed", c.err(0))
		}
		if c.err(1) != context.Canceled {
			t.Errorf("waiting: %v", c.err(1))
		}
		g.end <- struct{}{}
		<-g.begin
		g.end <- struct{}{}
		if err := c.err(2); err != nil {
			t.Error(err)
		}
		g.want(t, []string{"under way"}, []string{"stays"})
	})
}

// One bad message among 500 callers fails one caller.
func TestWriterFailsTheCallerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, bad = 500, 217
		g := &gate{refuse: func(m penstock.Message) error {
			if string(m.Payload) == fmt.Sprint(bad) {
				return fmt.Errorf("%w: %s", errRefused, m.Payload)
			}
			return nil
		}}
		w := writer.New(g, writer.Options{Delay: time.Second})
		var failed []int
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				if err := w.Publish(t.Context(), "orders", text(fmt.Sprint(i))); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed = append(failed, i)
				}
			})
		}
		all.Wait()
		if len(failed) != 1 || failed[0] != bad {
			t.Errorf("%v failed", failed)
		}
		rows := 0
		for _, commit := range g.commits {
			rows += len(commit)
		}
		if n := w.Stats().Commits; rows != callers-1 || n > 25 {
			t.Errorf("%d messages in %d tries", rows, n)
		}
		var field *penstock.FieldError
		if err := w.Publish(t.Context(), "orders", text("good"), penstock.Message{Key: "\x00"}); !errors.As(err, &field) {
			t.Errorf("a message that cannot be carried: %v", err)
		}
		g.outage = errors.New("down")
		before := w.Stats().Commits
		for range 4 {
			all.Go(func() {
				if err := w.Publish(t.Context(), "orders", text("x")); !errors.Is(err, g.outage) {
					t.Errorf("got %v", err)
				}
			})
		}
		all.Wait()
		if n := w.Stats().Commits - before; n != 1 {
			t.Errorf("what may have been committed was tried %d times", n)
		}
	})
}

func TestWriterCountsWhatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{outage: errors.New("down")}
		w := writer.New(g, writer.Options{})
		if err := w.PublishUnconfirmed(t.Context(), "orders", text("1"), text("2")); err != nil {
			t.Error(err)
		}
		_ = w.Flush(t.Context())
		if s := w.Stats(); s.Lost != 2 || !errors.Is(s.LastLoss, g.outage) {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestWriterCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gated()
		c := &calls{w: writer.New(g, writer.Options{Rows: 1, Delay: time.Hour})}
		c.publish(t.Context(), "under way")
		<-g.begin
		c.publish(t.Context(), "next")
		c.publish(t.Context(), "held back")
		ctx, cancel := context.WithCancel(t.Context())
		closed := make(chan error)
		go func() { closed <- c.w.Close(ctx) }()
		if !errors.Is(c.err(2), penstock.ErrClosed) || !errors.Is(c.w.PublishUnconfirmed(t.Context(), "orders", text("late")), penstock.ErrClosed) {
			t.Errorf("held back: %v", c.err(2))
		}
		g.end <- struct{}{}
		<-g.begin
		cancel()
		if err := <-closed; !errors.Is(err, context.Canceled) {
			t.Errorf("Close: %v", err)
		}
		if c.err(0) != nil || !errors.Is(c.err(1), context.Canceled) {
			t.Errorf("calls: %v and %v", c.err(0), c.err(1))
		}
		g.want(t, []string{"under way"})
		if err := c.w.PublishUnconfirmed(t.Context(), "orders", text("after")); !errors.Is(err, penstock.ErrClosed) {
			t.Errorf("Publish after Close: %v", err)
		}
	})
}

func TestWriterEnqueues(t *testing.T) {
	store := sqlitetest.New(t)
	ctx := t.Context()
	if err := store.CreateQueue(ctx, "jobs", penstock.FIFO); err != nil {
		t.Fatal(err)
	}
	w := writer.New(store, writer.Options{Delay: time.Millisecond})
	ids := make([][]penstock.Enqueued, 20)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			var err error
			if ids[i], err = w.Enqueue(ctx, "jobs", penstock.NewJob{Payload: fmt.Append(nil, i)}, penstock.NewJob{Payload: fmt.Append(nil, i)}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	jobs, err := store.DriverQueue("jobs").Claim(ctx, driver.Claim{Jobs: 100, Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	payload := map[int64]string{}
	for _, j := range jobs {
		payload[j.ID] = string(j.Payload)
	}
	for i, made := range ids {
		if len(made) != 2 || payload[made[0].ID] != fmt.Sprint(i) || payload[made[1].ID] != fmt.Sprint(i) {
			t.Errorf("call %d has the ids %v", i, made)
		}
	}
	if _, err := w.Enqueue(ctx, "nothing", penstock.NewJob{}); !errors.Is(err, penstock.ErrNoQueue) {
		t.Errorf("got %v", err)
	}
	if _, err := writer.New(&gate{}, writer.Options{}).Enqueue(ctx, "jobs", penstock.NewJob{}); err == nil {
		t.Error("a store without queues takes jobs")
	}
}

// Callers that call again as soon as they are answered share each commit, rather than taking turns in two halves. The
// commit does not wait for a late caller.
func TestWriterWaitsForWhoComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, calls, commit = 64, 10, 4 * time.Millisecond
		w := writer.New(slow{commit}, writer.Options{})
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range calls {
					if err := w.Publish(t.Context(), "o", penstock.Message{}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if s := w.Stats(); s.Rows != callers*calls || s.Commits != calls+1 {
			t.Errorf("%d calls in %d commits, want %d in %d: the first alone, and then all together", s.Rows, s.Commits, callers*calls, calls+1)
		}
		began := time.Now()
		all.Go(func() { _ = w.Publish(t.Context(), "o", penstock.Message{}) })
		synctest.Wait()
		if err := w.Publish(t.Context(), "o", penstock.Message{}); err != nil {
			t.Fatal(err)
		}
		if took, most := time.Since(began), 2*commit+commit/4; took > most {
			t.Errorf("whom the last commit answered did not come again, and it took %s, more than %s", took, most)
		}
		all.Wait()
	})
}

// slow takes a while for each commit.
type slow struct{ commit time.Duration }

func (s slow) Publish(context.Context, string, ...penstock.Message) error {
	time.Sleep(s.commit)
	return nil
}

// A negative limit is the default: with InFlight -1 no commit would ever begin.
func TestNegativeOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{}
		w := writer.New(g, writer.Options{Delay: -1, Rows: -1, Bytes: -1, InFlight: -1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Publish(ctx, "orders", text("1"), text("2")); err != nil {
			t.Error(err)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
		g.want(t, []string{"1", "2"})
	})
}

// Who waits without having looked at the error gets it then.
func TestWaitAfterAnError(t *testing.T) {
	store := sqlitetest.New(t)
	w := writer.New(store, writer.Options{})
	closed := writer.New(store, writer.Options{})
	if err := closed.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]*writer.Writer{"a bad key": w, "a closed writer": closed} {
		key := map[*writer.Writer]string{w: "\xff"}[to]
		published, err := to.PublishAsync(t.Context(), "orders", penstock.Message{Key: key})
		if again := published(t.Context()); err == nil || !errors.Is(again, err) {
			t.Errorf("%s: PublishAsync %v, and then %v", name, err, again)
		}
		enqueued, err := to.EnqueueAsync(t.Context(), "mails", penstock.NewJob{Key: key})
		if made, again := enqueued(t.Context()); err == nil || made != nil || !errors.Is(again, err) {
			t.Errorf("%s: EnqueueAsync %v, and then %v", name, err, again)
		}
	}
}
