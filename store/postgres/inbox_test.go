package postgres_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
)

// inboxFixture is a database of the test's own with one inbox, "billing".
type inboxFixture struct {
	*fixture
	inbox *postgres.Inbox
}

func newInboxFixture(t testing.TB) *inboxFixture {
	f := &inboxFixture{fixture: newFixture(t, postgres.Options{})}
	f.Must(f.store.CreateInbox(f.Ctx, "billing", 0))
	f.inbox = f.store.Inbox("billing")
	return f
}

// first is the answer to one id within tx.
func (f *inboxFixture) first(tx querier, id string) bool {
	f.Helper()
	isNew, err := f.inbox.First(f.Ctx, asTx(tx), id)
	f.Must(err)
	return isNew
}

func (f *inboxFixture) wantFirst(tx querier, id string, want bool) {
	f.Helper()
	if got := f.first(tx, id); got != want {
		f.Fatalf("first(%q): got %v, want %v", id, got, want)
	}
}

// turn is the ring's turn, moving whether the one before it still decides.
func (f *inboxFixture) turn(conn *pgx.Conn) (turn int64, moving bool) {
	f.Helper()
	var ring int64
	f.Must(conn.QueryRow(f.Ctx, `select pg_sequence_last_value('penstock."__inbox.1.ring"')`).Scan(&ring))
	return ring / 2, ring%2 == 1
}

// age makes half of the window pass and lets maintenance follow.
func (f *inboxFixture) age(conn *pgx.Conn) {
	f.Helper()
	_, err := conn.Exec(f.Ctx, `select setval('penstock."__inbox.1.since"', 0)`)
	f.Must(err)
	_, err = conn.Exec(f.Ctx, "select penstock.maintain_inbox('billing')")
	f.Must(err)
}

// ageTo ages the inbox until a turn has settled and the next one's segment is empty.
func (f *inboxFixture) ageTo(turn int64) {
	f.Helper()
	f.Eventually(fmt.Sprintf("turn %d settles", turn), func() bool {
		if now, moving := f.turn(f.Conn); now >= turn && !moving {
			f.Exec("select penstock.maintain_inbox('billing')") // since is young: it only truncates
			return f.Number(`select pg_relation_size(format('penstock."__inbox.1.seen.%s"', $1::int)::regclass)`, (turn+1)%4) == 0
		}
		f.age(f.Conn)
		return false
	})
}

// An id that was received in a savepoint is new again after its rollback.
func TestInboxInASavepoint(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	tx := f.begin(f.Conn)
	inner, err := tx.Begin(f.Ctx)
	f.Must(err)
	f.wantFirst(inner, "c", true)
	f.Must(inner.Rollback(f.Ctx))
	f.wantFirst(tx, "c", true)
	f.Must(tx.Commit(f.Ctx))
	f.wantFirst(f.Conn, "c", false)
}

// The second of two transactions with one id waits for the first. If its snapshot is older it does not know the answer.
func TestInboxWaitsForWhoCameFirst(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	for id, commit := range map[string]bool{"committed": true, "rolled back": false} {
		other := f.Connect()
		second, err := other.BeginTx(f.Ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		f.Must(err)
		_, err = second.Exec(f.Ctx, "select 1 from pg_class limit 1") // takes the snapshot
		f.Must(err)
		first := f.begin(f.Conn)
		f.wantFirst(first, id, true)
		var isNew bool
		answered := make(chan error, 1)
		go func() {
			var err error
			isNew, err = f.inbox.First(f.Ctx, second, id)
			answered <- err
		}()
		watch := f.Connect()
		f.Eventually("the second waits", func() bool {
			var n int
			f.Must(watch.QueryRow(f.Ctx, "select count(*) from pg_stat_activity where pid = $1 and wait_event_type = 'Lock'", other.PgConn().PID()).Scan(&n))
			return n == 1
		})
		if commit {
			f.Must(first.Commit(f.Ctx))
		} else {
			f.Must(first.Rollback(f.Ctx))
		}
		if err := <-answered; commit && state(err) != "40001" || !commit && (err != nil || !isNew) {
			t.Errorf("%s: new is %v, %v, want 40001 of what its snapshot has not seen, and true after a rollback", id, isNew, err)
		}
	}
}

// A transaction with an old snapshot does not see what was received since, nor does it take
// that for new.
func TestInboxInAnOldSnapshot(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	old, err := f.Connect().BeginTx(f.Ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	f.Must(err)
	_, err = old.Exec(f.Ctx, "select 1 from pg_class limit 1")
	f.Must(err)
	f.wantFirst(f.Conn, "a", true)
	turn, _ := f.turn(f.Conn)
	f.ageTo(turn + 1)
	if isNew, err := f.inbox.First(f.Ctx, old, "a"); state(err) != "40001" {
		t.Errorf("got %v and %v, want 40001", isNew, err)
	}
}

func state(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

func TestInboxForgetsAfterItsWindow(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	f.pin()
	f.wantFirst(f.Conn, "old", true)
	start, _ := f.turn(f.Conn)
	f.ageTo(start + 2)
	f.wantFirst(f.Conn, "old", false)
	f.wantFirst(f.Conn, "young", true)
	f.ageTo(start + 3) // a whole window after start had settled
	f.wantFirst(f.Conn, "old", true)
	f.wantFirst(f.Conn, "young", false)
	f.Exec("select penstock.inbox_many('billing', array(select 'x' || i from generate_series(1, 20000) i))")
	full := f.Number("select bytes from penstock.inboxes()")
	start, _ = f.turn(f.Conn)
	f.ageTo(start + 3)
	if left := f.Number("select bytes from penstock.inboxes()"); left > full/4 {
		t.Errorf("%d bytes of %d are left after the window, while a snapshot is pinned", left, full)
	}
	f.wantFirst(f.Conn, "x1", true)
}

// Nothing turns before half of the window has passed, and a call turns the ring.
func TestInboxTurnsByItself(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	start, _ := f.turn(f.Conn)
	f.Exec("select penstock.maintain_inbox('billing'), penstock.maintain_inbox('billing')")
	if now, _ := f.turn(f.Conn); now != start {
		t.Fatalf("turn %d became %d at once", start, now)
	}
	f.Exec(`select setval('penstock."__inbox.1.since"', 0), setval('penstock."__inbox.1.next"', 0)`)
	f.wantFirst(f.Conn, "a", true)
	if now, moving := f.turn(f.Conn); now != start+1 || !moving {
		t.Errorf("turn %d became %d, moving %v, want the next one", start, now, moving)
	}
}

// A sequence that was restarted is an error. A call does not wait for ever for the value that it read first.
func TestInboxWhoseSequencesWereRestarted(t *testing.T) {
	t.Parallel()
	for _, register := range []string{"ring", "epoch"} {
		f := newInboxFixture(t)
		f.wantFirst(f.Conn, "a", true) // and maintenance, which is not due again then
		f.Exec(`alter sequence penstock."__inbox.1.` + register + `" restart`)
		f.Exec("set statement_timeout = '10 s'")
		_, err := f.Conn.Exec(f.Ctx, "select penstock.inbox_in_order('billing', 'k', 'b', 'missing', '{}', 'x'::text, interval '1 s')")
		if pgErr := new(pgconn.PgError); !errors.As(err, &pgErr) || pgErr.Code != "55000" {
			t.Errorf("with %s restarted: %v, want 55000", register, err)
		}
	}
}

func TestInboxRefuses(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	long := strings.Repeat("x", 257)
	for sql, want := range map[string]string{
		"select penstock.inbox('nobody', 'a')":                                                                    "42P01",
		"select penstock.inbox(null, 'a')":                                                                        "42P01",
		"select penstock.inbox('', 'a')":                                                                          "42P01",
		"select penstock.inbox('billing', '')":                                                                    "22023",
		"select penstock.inbox('billing', null)":                                                                  "22023",
		"select penstock.inbox('billing', '" + long + "')":                                                        "23514",
		"select penstock.inbox_many('billing', '{a,NULL}')":                                                       "22023",
		"select penstock.inbox_many('billing', '{a," + long + "}')":                                               "23514",
		"select penstock.inbox_due('billing', 0)":                                                                 "22023",
		"select penstock.create_inbox('')":                                                                        "23514",
		"select penstock.create_inbox('" + long[:49] + "')":                                                       "23514",
		"select penstock.create_inbox('x', '1 s')":                                                                "22023",
		"select penstock.create_inbox('billing')":                                                                 "42P07",
		"select penstock.set_inbox('nobody', '1 day')":                                                            "42P01",
		"select penstock.set_inbox('billing', null)":                                                              "22023",
		"select penstock.drop_inbox('nobody')":                                                                    "42P01",
		"select penstock.grant_consumer('nobody', 'postgres')":                                                    "42P01",
		"select penstock.inbox_in_order('billing', 'k', 'm', 'm', null, '')":                                      "22023",
		"select penstock.inbox_in_order('billing', 'k', 'm', '" + long + "', null, '')":                           "23514",
		"select penstock.inbox_in_order('billing', 'k', 'm', null, '[]', '')":                                     "23514",
		"select penstock.inbox_in_order('billing', 'k', 'm', null, null, null)":                                   "22023",
		"select penstock.inbox_in_order('billing', repeat('k', 1025), 'm', null, null, '')":                       "23514",
		"select penstock.inbox_in_order('billing', 'k', 'm', null, null, '', '-1 s')":                             "22023",
		"select penstock.inbox_in_order('billing', 'k', 'm', null, null, '', '5 days')":                           "22023",
		"begin isolation level repeatable read; select penstock.inbox_due('billing')":                             "25001",
		"select penstock.inbox_held('billing', n => 0)":                                                           "22023",
		"select penstock.inbox_gaps('billing', 10001)":                                                            "22023",
		"select penstock.grant_inbox_operator('nobody', 'postgres')":                                              "42P01",
		"begin isolation level repeatable read; select penstock.inbox_release('billing')":                         "25001",
		"begin isolation level serializable; select penstock.inbox_discard('billing', '{m}')":                     "25001",
		"begin isolation level serializable; select penstock.inbox_in_order('billing', 'k', 'm', null, null, '')": "25001",
	} {
		_, err := f.Conn.Exec(f.Ctx, sql, pgx.QueryExecModeSimpleProtocol)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != want || pg.Hint == "" {
			t.Errorf("%s: got %v, want %s with a hint", sql, err, want)
		}
		f.Exec("rollback")
	}
	var field *penstock.FieldError
	if _, err := f.inbox.First(f.Ctx, asTx(f.Conn), long); !errors.As(err, &field) {
		t.Errorf("First with a long id: %v, want a FieldError", err)
	}
	if err := f.store.CreateInbox(f.Ctx, "x", time.Second); !errors.As(err, &field) {
		t.Errorf("CreateInbox for a second: %v, want a FieldError", err)
	}
	if err := f.store.CreateInbox(f.Ctx, "billing", 0); !errors.Is(err, penstock.ErrInboxExists) {
		t.Errorf("CreateInbox: %v, want ErrInboxExists", err)
	}
	if _, err := f.store.Inbox("nobody").First(f.Ctx, asTx(f.Conn), "a"); !errors.Is(err, penstock.ErrNoInbox) {
		t.Errorf("First without an inbox: %v, want ErrNoInbox", err)
	}
	if err := f.store.SetInbox(f.Ctx, "nobody", time.Hour); !errors.Is(err, penstock.ErrNoInbox) {
		t.Errorf("SetInbox: %v, want ErrNoInbox", err)
	}
	f.Must(f.store.DropInbox(f.Ctx, "billing"))
	if left := f.Number(`select count(*) from pg_class where relname like '\_\_inbox.%'`) + f.Number(`select count(*) from pg_proc where proname like '\_\_inbox.%'`); left != 0 {
		t.Errorf("%d relations and functions are left of an inbox that was dropped", left)
	}
	f.Must(f.store.CreateInbox(f.Ctx, "billing", 0))
}

func TestInboxWithDatabaseSQL(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	config, err := pgx.ParseConfig(f.URL)
	f.Must(err)
	db := stdlib.OpenDB(*config)
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(f.Ctx, &sql.TxOptions{})
	f.Must(err)
	defer func() { _ = tx.Rollback() }()
	for _, want := range []bool{true, false} {
		if isNew, err := f.inbox.FirstSQL(f.Ctx, tx, "a"); isNew != want || err != nil {
			t.Errorf("got %v and %v, want %v", isNew, err, want)
		}
	}
	fresh, err := f.inbox.FirstOfSQL(f.Ctx, tx, "c", "a", "b'\"{,}\\")
	f.Must(err)
	if !slices.Equal(fresh, []string{"c", "b'\"{,}\\"}) {
		t.Errorf("new are %q", fresh)
	}
	receive := func(id, previous string) []penstock.Released {
		t.Helper()
		m := penstock.Message{ID: id, Key: "k", Payload: []byte("of " + id), Headers: map[string]string{"h": "1"}}
		if previous != "" {
			m.Headers[penstock.HeaderPrevious] = previous
		}
		got, err := f.inbox.InOrderSQL(f.Ctx, tx, m, 0)
		f.Must(err)
		return got
	}
	wantReleased(t, receive("1", ""), "1")
	wantReleased(t, receive("3", "2"))
	wantReleased(t, receive("2", "1"), "2", "3")
	wantReleased(t, receive("5", "4"))
	f.Must(tx.Commit())
	due, err := f.inbox.DueSQL(f.Ctx, aloneSQL{db}, 10)
	f.Must(err)
	wantReleased(t, due, "5 after the gap 4")
	if r := due[0]; r.Key != "k" || string(r.Payload) != "of 5" || r.Headers["h"] != "1" {
		t.Errorf("released %+v", r)
	}
}

func wantReleased(t testing.TB, got []penstock.Released, want ...string) {
	t.Helper()
	texts := []string{}
	for _, r := range got {
		text := r.ID
		if r.Gap {
			text += " after the gap " + r.Missing
		}
		if r.Late {
			text += " late"
		}
		texts = append(texts, text)
	}
	if !slices.Equal(texts, want) && len(texts)+len(want) > 0 {
		t.Fatalf("released %q, want %q", texts, want)
	}
}

func TestStoreOfAConsumer(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	f.Must(f.store.CreateInbox(f.Ctx, "secret", 0))
	name, asRole := f.role()
	f.Exec("select penstock.grant_consumer('billing', $1)", name)
	conn := f.connectAs(asRole)
	for _, allowed := range []string{
		"select penstock.inbox('billing', 'a')", "select penstock.inbox_many('billing', '{a,b}')", "select penstock.inbox_due('billing')",
		"select penstock.inbox_in_order('billing', 'k', 'm2', 'm1', null, '')", "select penstock.maintain_inbox('billing')",
	} {
		if _, err := conn.Exec(f.Ctx, allowed); err != nil {
			t.Errorf("%s: %v", allowed, err)
		}
	}
	f.wantDenied(conn,
		"select penstock.inbox('secret', 'a')", "select penstock.inbox_many('secret', '{a,b}')", "select penstock.inbox_due('secret')",
		"select penstock.inbox_in_order('secret', 'k', 'm2', 'm1', null, '')", "select penstock.maintain_inbox('secret')",
		"select penstock.inbox_held('billing')", "select penstock.inbox_gaps('billing')", "select penstock.inbox_release('billing')",
		"select penstock.inbox_discard('billing', '{m2}')", "select penstock.grant_inbox_operator('billing', current_user)",
		"select penstock.create_inbox('x')", "select penstock.drop_inbox('billing')", "select penstock.set_inbox('billing', '1 day')",
		"select penstock.grant_consumer('secret', current_user)", "select * from penstock.inboxes()", "select * from penstock._inbox",
		`select * from penstock."__inbox.1.seen.0"`, `delete from penstock."__inbox.1.held.0"`, `select setval('penstock."__inbox.1.ring"', 100)`,
		`select penstock."__inbox.2.first"('a')`, `select penstock."__inbox.1.empty"(0)`)
	if _, err := f.store.Inbox("secret").First(f.Ctx, asTx(conn), "b"); err == nil || !strings.Contains(err.Error(), "inbox grant secret ROLE --consume") {
		t.Errorf("got %v, want an error that names the grant", err)
	}
}
