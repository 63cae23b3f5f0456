package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// asks has a separate transaction receive an id, and waits until that waits for a lock. The answer
// comes once it has committed.
func (f *inboxFixture) asks(id string) (told <-chan bool) {
	f.Helper()
	conn := f.Connect()
	return f.asksIn(conn, conn, id)
}

// asksIn is asks in a transaction of conn.
func (f *inboxFixture) asksIn(conn *pgx.Conn, tx querier, id string) (told <-chan bool) {
	f.Helper()
	answer := make(chan bool, 1)
	go func() {
		isNew, err := f.inbox.First(f.Ctx, asTx(tx), id)
		if err != nil {
			f.Error(err)
		}
		answer <- isNew
	}()
	pid := conn.PgConn().PID()
	f.Eventually("the call waits", func() bool {
		return f.Number("select count(*) from pg_stat_activity where pid = $1 and wait_event_type = 'Lock'", pid) == 1
	})
	return answer
}

// A transaction that has received an id keeps the turn in which it did so deciding, however
// often the ring would turn.
func TestInboxAcrossATurn(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		f := newInboxFixture(t)
		start, _ := f.turn(f.Conn)
		f.wantFirst(f.Conn, "before", true) // maintains, so that the next call does not
		first := f.begin(f.Connect())
		f.wantFirst(first, "a", true)
		for range 5 {
			f.age(f.Conn)
		}
		if now, moving := f.turn(f.Conn); now != start+1 || !moving {
			t.Fatalf("turn %d became %d, moving %v, want the next one that moves", start, now, moving)
		}
		f.wantFirst(f.Conn, "b", true)
		f.wantFirst(f.Conn, "b", false)
		told := f.asks("a")
		if commit {
			f.Must(first.Commit(f.Ctx))
		} else {
			f.Must(first.Rollback(f.Ctx))
		}
		if isNew := <-told; isNew == commit {
			t.Errorf("the first committed: %v, the second was told that the id is new: %v", commit, isNew)
		}
		f.ageTo(start + 1)
		f.wantFirst(f.Conn, "a", false)
		f.wantFirst(f.Conn, "b", false)
	}
}

// The ring turns while a call is between reading the register and having the turn's lock.
func TestInboxLooksAgainUnderTheTurnsLock(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	start, _ := f.turn(f.Conn)
	f.wantFirst(f.Conn, "before", true) // maintains, so that the next call does not
	f.Exec("select pg_advisory_lock(1885695598, (4 + $1::bigint % 4)::int)", start)
	slow := f.Connect()
	tx := f.begin(slow)
	told := f.asksIn(slow, tx, "a")
	f.Exec(`select setval('penstock."__inbox.1.ring"', ($1::bigint + 1) * 2)`, start) // as if no transaction were seen to hold it
	f.wantFirst(f.Conn, "b", true)
	f.Exec("select pg_advisory_unlock(1885695598, (4 + $1::bigint % 4)::int)", start)
	if !<-told {
		t.Fatal("the id is not new")
	}
	for range 5 { // it holds the next turn now
		f.age(f.Conn)
	}
	if now, moving := f.turn(f.Conn); now != start+2 || !moving {
		t.Fatalf("turn %d became %d, moving %v, want the second after it, that moves", start, now, moving)
	}
	told = f.asks("a")
	f.Must(tx.Commit(f.Ctx))
	if <-told {
		t.Error("two were told that the id is new")
	}
}

// A transaction that has received an id and maintains does not take itself for gone.
func TestInboxMaintenanceOfWhoHoldsTheTurn(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	start, _ := f.turn(f.Conn)
	conn := f.Connect()
	first := f.begin(conn)
	f.wantFirst(first, "a", true)
	for range 3 {
		f.ageWithin(first)
	}
	if now, moving := f.turn(conn); now != start+1 || !moving {
		t.Fatalf("turn %d became %d, moving %v, want the next one that moves", start, now, moving)
	}
	told := f.asks("a")
	f.Must(first.Commit(f.Ctx))
	if <-told {
		t.Error("two were told that the id is new")
	}
}

// ageWithin is age by a connection that has a transaction.
func (f *inboxFixture) ageWithin(tx pgx.Tx) {
	f.Helper()
	f.age(tx.Conn())
}
