package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/testseed"
)

func arrival(key, id, previous string) penstock.Message {
	m := penstock.Message{ID: id, Key: key, Payload: []byte(id)}
	if previous != "" {
		m.Headers = map[string]string{penstock.HeaderPrevious: previous}
	}
	return m
}

func (f *inboxFixture) receive(m penstock.Message, wait time.Duration) []penstock.Released {
	f.Helper()
	released, err := f.inbox.InOrder(f.Ctx, asTx(f.Conn), m, wait)
	f.Must(err)
	return released
}

func (f *inboxFixture) due(n int) []penstock.Released {
	f.Helper()
	released, err := f.inbox.Due(f.Ctx, asTx(f.Conn), n)
	f.Must(err)
	return released
}

// A consumer that works on a key leaves nothing of it to others.
func TestInboxLeavesAKeyToWhoWorksOnIt(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	for _, m := range []penstock.Message{arrival("n", "2n", "1n"), arrival("n", "3n", "2n"), arrival("o", "2o", "1o")} {
		wantReleased(t, f.receive(m, 0))
	}
	locked := f.begin(f.Connect())
	_, err := f.inbox.InOrder(f.Ctx, locked, arrival("n", "9n", ""), 0)
	f.Must(err)
	wantReleased(t, f.due(10), "2o after the gap 1o")
	f.Must(locked.Rollback(f.Ctx))
	wantReleased(t, f.due(1), "2n after the gap 1n", "3n")
}

// A held message stays held over turns of the ring, and keeps its id known.
func TestInboxHoldsOverTurns(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	wantReleased(t, f.receive(arrival("k", "2", "1"), 0))
	start, _ := f.turn(f.Conn)
	f.ageTo(start + 2)
	for range 5 {
		f.age(f.Conn)
	}
	if now, _ := f.turn(f.Conn); now != start+2 {
		t.Errorf("turn %d came while turn %d held a message", now, start)
	}
	wantReleased(t, f.receive(arrival("k", "2", "1"), 0))
	wantReleased(t, f.due(10), "2 after the gap 1")
	f.ageTo(start + 3)
}

// A message that is held by a transaction that takes long is found once it commits, however
// often others have looked before.
func TestInboxFindsWhatCommittedLate(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	f.wantFirst(f.Conn, "before", true) // maintains, so that the next call does not
	low := func() int64 { return f.Number(`select pg_sequence_last_value('penstock."__inbox.1.low"')`) }
	start := low()
	late := f.begin(f.Connect())
	_, err := f.inbox.InOrder(f.Ctx, late, arrival("k", "2", "1"), 0)
	f.Must(err)
	f.Exec(`select setval('penstock."__inbox.1.low"', $1::bigint)`, start-5000) // it is time to move it
	for n := range 20 {
		wantReleased(t, f.receive(arrival("l", fmt.Sprint("b", n), fmt.Sprint("a", n)), 0))
		wantReleased(t, f.due(10), fmt.Sprintf("b%d after the gap a%d", n, n))
	}
	f.Must(late.Commit(f.Ctx))
	wantReleased(t, f.due(10), "2 after the gap 1")
	unrelated := f.begin(f.Connect()) // a writer that holds nothing back
	_, err = unrelated.Exec(f.Ctx, "select pg_current_xact_id()")
	f.Must(err)
	f.Eventually("the bound moves", func() bool {
		wantReleased(t, f.due(10))
		return low() > start+1
	})
}

// Consumers in parallel get the messages of several keys shuffled, more than once, and some
// never or late; they fail at random; the ring turns. Every message that comes is
// processed once, and in its key's order where nothing is missing.
func TestInboxInOrderUnderRandomUse(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	f.Exec("create table effects (n bigserial, key text, id text primary key, place int, gap boolean, missing text, late boolean)")
	const keys, each = 12, 40
	r := testseed.New(t.Name(), 0)
	var todo []delivery
	absent := map[string]bool{} // keys of which messages are missing
	for k := range keys * testseed.Rounds() {
		key := fmt.Sprint("k", k)
		wait := 24 * time.Hour // nothing is due
		absent[key] = k%3 == 0
		if absent[key] {
			wait = 0 // all that is held is due
		}
		for n := range each {
			d := delivery{arrival(key, fmt.Sprintf("%s-%d", key, n), ""), n, wait, float64(n) + 12*r.Float64()}
			if n > 0 {
				d.Headers = map[string]string{penstock.HeaderPrevious: fmt.Sprintf("%s-%d", key, n-1)}
			}
			if absent[key] && r.IntN(8) == 0 {
				d.at += 30 // late, perhaps after its gap was reported
				if r.IntN(2) == 0 {
					continue // never
				}
			}
			todo = append(todo, d)
			for r.IntN(4) == 0 {
				d.at += 20 * r.Float64()
				todo = append(todo, d)
			}
		}
	}
	f.consume(t, r, todo)
	f.checkEffects(t, todo, absent)
}

// delivery is one time that a message comes, at some moment.
type delivery struct {
	penstock.Message
	place int
	wait  time.Duration
	at    float64
}

// consume has eight consumers receive what there is to do, and one look for what is due.
func (f *inboxFixture) consume(t *testing.T, r *rand.Rand, todo []delivery) {
	sortDeliveries(todo)
	queue := make(chan delivery, 4*len(todo))
	var open, consumers, others sync.WaitGroup
	open.Add(len(todo))
	for _, d := range todo {
		queue <- d
	}
	errFails := errors.New("the consumer fails")
	pool, err := pgxpool.New(f.Ctx, f.URL)
	f.Must(err)
	t.Cleanup(pool.Close)
	handler := func(r *rand.Rand) func(ctx context.Context, tx pgx.Tx, m penstock.Released) error {
		return func(ctx context.Context, tx pgx.Tx, m penstock.Released) error {
			var missing *string
			if m.Gap {
				missing = &m.Missing
			}
			_, err := tx.Exec(ctx, "insert into effects (key, id, place, gap, missing, late) values ($1, $2, split_part($2, '-', 2)::int, $3, $4, $5)",
				m.Key, m.ID, m.Gap, missing, m.Late)
			if err == nil && r.IntN(10) == 0 {
				return errFails
			}
			return err
		}
	}
	for w := range 6 {
		h := handler(testseed.New(t.Name(), w+1))
		consumers.Go(func() {
			for d := range queue {
				switch err := f.inbox.Process(f.Ctx, pool, d.Message, d.wait, h); {
				case errors.Is(err, errFails):
					queue <- d // the broker delivers it again
					continue
				case err != nil:
					t.Errorf("%s: %v", d.ID, err)
				}
				open.Done()
			}
		})
	}
	stop := make(chan struct{})
	turner := f.Connect()
	start, _ := f.turn(turner)
	others.Go(func() { // as far as nothing is forgotten
		for now := start; now < start+2; now, _ = f.turn(turner) {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				f.age(turner)
			}
		}
	})
	dueHandler := handler(testseed.New(t.Name(), 100))
	others.Go(func() {
		for {
			if _, err := f.inbox.ProcessDue(f.Ctx, pool, dueHandler); err != nil && !errors.Is(err, errFails) {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(r.IntN(10)) * time.Millisecond):
			}
		}
	})
	open.Wait()
	close(queue)
	consumers.Wait()
	close(stop)
	others.Wait()
	for {
		_, err := f.inbox.ProcessDue(f.Ctx, pool, dueHandler)
		if err == nil {
			break
		}
		if !errors.Is(err, errFails) {
			t.Fatal(err)
		}
	}
}
