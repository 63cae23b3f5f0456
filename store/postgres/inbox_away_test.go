package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testseed"
)

// Consumers whose database goes away in the middle of their work, twice, have done each message once in the end, in its key's
// order, whatever the broker delivers again.
func TestInboxWhoseDatabaseIsAway(t *testing.T) {
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	f := newInboxFixture(t)
	f.Exec("create table effects (n bigserial, key text, place int)")
	proxy := tcpproxy.New(t, hostOf(t, f.URL))
	app, err := pgxpool.New(f.Ctx, through(t, f.URL, proxy.Addr()))
	f.Must(err)
	t.Cleanup(app.Close)
	t.Cleanup(proxy.Resume)
	const keys, each, consumers = 8, 40, 6
	r := testseed.New(t.Name(), 0)
	var todo []delivery
	for k := range keys {
		for n := range each {
			d := delivery{Message: arrival(fmt.Sprint(k), fmt.Sprintf("%d-%d", k, n), ""), place: n, at: float64(n) + 12*r.Float64()}
			if n > 0 {
				d.Headers = map[string]string{penstock.HeaderPrevious: fmt.Sprintf("%d-%d", k, n-1)}
			}
			todo = append(todo, d)
		}
	}
	sortDeliveries(todo)
	queue := make(chan delivery, 2*len(todo))
	deliver := func(part int) {
		for _, d := range todo[part*len(todo)/3 : (part+1)*len(todo)/3] {
			queue <- d
		}
	}
	deliver(0)
	handle := func(ctx context.Context, tx pgx.Tx, m penstock.Released) error {
		if m.Gap || m.Late {
			t.Errorf("%s: gap %v, late %v", m.ID, m.Gap, m.Late)
		}
		_, err := tx.Exec(ctx, "insert into effects (key, place) values ($1, split_part($2, '-', 2)::int)", m.Key, m.ID)
		return err
	}
	var failed, done atomic.Int64
	var working, acked sync.WaitGroup
	acked.Add(len(todo))
	for range consumers {
		working.Go(func() {
			for d := range queue {
				call, cancel := context.WithTimeout(f.Ctx, time.Minute)
				err := f.inbox.Process(call, app, d.Message, time.Hour, handle)
				cancel()
				if err != nil {
					if errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					failed.Add(1)
					queue <- d // it was not acknowledged
					continue
				}
				done.Add(1)
				acked.Done()
			}
		})
	}
	for part := range 2 {
		f.Eventually("they work", func() bool { return int(done.Load()) > (2*part+1)*len(todo)/6 })
		before := failed.Load()
		proxy.Refuse()
		deliver(part + 1)
		f.Eventually("all have met it, many times", func() bool { return failed.Load() > before+20*consumers })
		proxy.Resume()
	}
	acked.Wait()
	close(queue)
	working.Wait()
	if n := f.Number("select count(*) from (select key, place, lag(place, 1, -1) over (partition by key order by n) as before from effects) e where place = before + 1"); n != int64(len(todo)) {
		t.Errorf("%d of %d messages were done right behind the one before them", n, len(todo))
	}
	if n := f.Number("select count(*) from effects"); n != int64(len(todo)) {
		t.Errorf("%d effects of %d messages", n, len(todo))
	}
	if n := f.Number("select held from penstock.inboxes()"); n != 0 {
		t.Errorf("%d messages are held", n)
	}
}
