package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/testseed"
)

// receivedModel knows, of each id, at which turn it was said to be new by transactions
// that committed.
type receivedModel struct {
	sync.Mutex
	turns  map[string][]int64
	denied map[string]bool // it was said to be known
}

// commit notes that a committed transaction was told that id is new. It had read the ring's turn
// before and after: within the window no transaction is told so again. Rows that are written while
// turn t is current stay until turn t+3 settles.
func (m *receivedModel) commit(t *testing.T, id string, before, after int64) {
	m.Lock()
	defer m.Unlock()
	for _, other := range m.turns[id] {
		if after < other+3 && other <= after {
			t.Errorf("%s was new at turn %d and again at turn %d", id, other, after)
		}
	}
	m.turns[id] = append(m.turns[id], before)
}

// Many transactions receive the same ids again and again, at every isolation level, one by one and
// many at once. There are rollbacks and savepoints, and the ring turns as fast as it can.
func TestInboxUnderRandomUse(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	model := &receivedModel{turns: map[string][]int64{}, denied: map[string]bool{}}
	stop := make(chan struct{})
	var turner, workers sync.WaitGroup
	var turns atomic.Int64 // of which there must be enough to test them
	turnerConn := f.Connect()
	turner.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				f.age(turnerConn)
				turn, _ := f.turn(turnerConn)
				turns.Store(turn - 4)
			}
		}
	})
	for w := range 8 {
		conn := f.Connect()
		r := testseed.New(t.Name(), w)
		workers.Go(func() {
			for n := 0; n < testseed.Steps(250) || turns.Load() < 5; n++ {
				f.receiveAtRandom(t, conn, r, model, n)
			}
		})
	}
	workers.Wait()
	close(stop)
	turner.Wait()
	for id := range model.denied {
		if len(model.turns[id]) == 0 {
			t.Errorf("%s was said to be known and nobody ever received it", id)
		}
	}
	t.Logf("%d ids in %d turns", len(model.turns), turns.Load())
}

// receiveAtRandom is one transaction.
func (f *inboxFixture) receiveAtRandom(t *testing.T, conn *pgx.Conn, r *rand.Rand, model *receivedModel, n int) {
	level := []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.ReadCommitted, pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}[r.IntN(5)]
	before, _ := f.turn(conn)
	tx, err := conn.BeginTx(f.Ctx, pgx.TxOptions{IsoLevel: level})
	f.Must(err)
	defer func() { _ = tx.Rollback(f.Ctx) }()
	fresh, known := map[string]bool{}, map[string]bool{}
	pick := func() string { return fmt.Sprintf("id-%d", max(0, n/4+r.IntN(12)-8)) } // those of some time ago too
	for range 1 + r.IntN(3) {
		ids := []string{pick()}
		if r.IntN(3) == 0 {
			ids = append(ids, pick(), pick(), pick())
		}
		within, undo := pgx.Tx(tx), r.IntN(6) == 0
		if undo {
			within, err = tx.Begin(f.Ctx)
			f.Must(err)
		}
		var isNew []string
		if len(ids) > 1 {
			isNew, err = f.inbox.FirstOf(f.Ctx, within, ids...)
		} else {
			var yes bool
			if yes, err = f.inbox.First(f.Ctx, within, ids[0]); yes {
				isNew = ids
			}
		}
		if s := state(err); s == "40001" || s == "40P01" {
			return // as an application would, it starts again, with other ids
		}
		if err != nil {
			t.Error(err)
			return
		}
		for _, id := range isNew {
			if fresh[id] {
				t.Errorf("%s is new twice to one transaction", id)
			}
			fresh[id] = !undo
		}
		for _, id := range ids {
			if !fresh[id] && !slices.Contains(isNew, id) {
				known[id] = true
			}
		}
		if undo {
			f.Must(within.Rollback(f.Ctx))
		}
	}
	if r.IntN(4) == 0 {
		f.Must(tx.Rollback(f.Ctx))
		return
	}
	for range r.IntN(15) { // some see the ring turn
		if now, _ := f.turnWithin(tx); now > before+1 {
			break
		}
	}
	after, _ := f.turnWithin(tx)
	if err := tx.Commit(f.Ctx); err != nil {
		if state(err) != "40001" {
			t.Error(err)
		}
		return
	}
	for id, yes := range fresh {
		if yes {
			model.commit(t, id, before, after)
		}
	}
	model.Lock()
	defer model.Unlock()
	for id := range known {
		model.denied[id] = true
	}
}

// turnWithin is turn by a connection that has a transaction.
func (f *inboxFixture) turnWithin(tx pgx.Tx) (turn int64, moving bool) { return f.turn(tx.Conn()) }
