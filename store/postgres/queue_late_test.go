package postgres_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/store/postgres"
)

// An INSERT evaluates the default of its slot, and what its payload is made of may take very long
// after that. The ring turns many times meanwhile. When it commits, its job is there at once, before
// those of its key that have higher ids, and comes once, whatever maintenance does then.
func TestInsertThatIsLateForItsSegment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct { // each pair of them
		segments int
		key      string
		prepared bool
	}{{2, "", false}, {2, "k", true}, {4, "", true}, {4, "k", false}} {
		t.Run(fmt.Sprintf("%d segments/key=%q/prepared=%t", c.segments, c.key, c.prepared), func(t *testing.T) {
			t.Parallel()
			l := &lateInsert{fixture: newFixture(t, postgres.Options{}), key: c.key}
			l.Exec("select penstock.create_queue('q', 'fifo', $1, 65536)", c.segments)
			l.run(c.prepared)
		})
	}
}

type lateInsert struct {
	*fixture
	key  string
	next int // the last job that was enqueued
}

func (l *lateInsert) run(prepared bool) {
	gate := l.begin(l.Connect())
	l.exec(gate.Conn(), "select pg_advisory_xact_lock(1)")
	late := l.Connect()
	insert := l.insertStatement("'late' || (select pg_advisory_xact_lock_shared(1))::text")
	if prepared {
		insert = "prepare i as " + insert + "; set plan_cache_mode = force_generic_plan; execute i"
	}
	ended := make(chan error, 1)
	go func() {
		_, err := late.Exec(l.Ctx, insert, pgx.QueryExecModeSimpleProtocol)
		ended <- err
	}()
	l.Eventually("the INSERT waits", func() bool {
		return l.Number("select count(*) from pg_locks where pid = $1 and not granted and locktype = 'advisory'", late.PgConn().PID()) == 1
	})

	turn := func() { // each time through most of a segment
		l.Helper()
		l.add(58, "")
		l.add(2, l.key)
		l.wantNext(60, l.next-59)
		l.Exec(maintainAtOnce, pgx.QueryExecModeSimpleProtocol)
		l.maintain()
	}
	for n := 0; n < 12 || l.Number(`select pg_sequence_last_value('penstock."_q.ring"') % 1024`) == 0; n++ {
		turn() // in the segment that is written to it would be found by luck
	}
	l.add(10, l.key)
	l.Must(gate.Rollback(l.Ctx))
	l.Must(<-ended)

	// Its id is lower than those of the jobs that wait; without a key it is found within 25 ms, and in any place.
	if l.key != "" {
		l.wantTexts(l.taken(1), "late")
		l.wantNext(10, l.next-9)
	} else {
		l.later("q")
		got := l.taken(100)
		if n := len(got); n != 11 || !slices.Contains(got, "late") {
			l.Fatalf("got %q, want the late job and ten others", got)
		}
	}
	for range 12 {
		turn()
	}
	if got := l.taken(100); len(got) != 0 {
		l.Errorf("%q came as well", got)
	}
	l.Eventually("its segment is given back", func() bool {
		l.Exec(maintainAtOnce, pgx.QueryExecModeSimpleProtocol)
		l.maintain()
		return l.Number("select count(*) from penstock._segment where retired is not null") == 0
	})
}

// insertStatement is an INSERT as any language would write it.
func (l *lateInsert) insertStatement(payload string) string {
	if l.key == "" {
		return "insert into penstock.q (payload) values (convert_to(" + payload + ", 'UTF8'))"
	}
	return "insert into penstock.q (key, payload) values ('" + l.key + "', convert_to(" + payload + ", 'UTF8'))"
}

// add enqueues n numbers, wide enough for a segment to be full after some more than a hundred.
func (l *lateInsert) add(n int, key string) {
	l.Helper()
	l.Exec("insert into penstock.q (key, payload) select nullif($1, ''), convert_to(rpad(i::text, 900), 'UTF8') from generate_series($2::int, $3::int) i",
		key, l.next+1, l.next+n)
	l.next += n
}

// taken are the texts of up to n jobs.
func (l *lateInsert) taken(n int) (all []string) {
	l.Helper()
	for len(all) < n {
		rows, _ := l.Conn.Query(l.Ctx, "select trim(convert_from(payload, 'UTF8')) from penstock.dequeue('q', $1)", n-len(all))
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		l.Must(err)
		if len(got) == 0 {
			break
		}
		all = append(all, got...)
	}
	return all
}

func (l *lateInsert) wantNext(n, first int) {
	l.Helper()
	want := make([]string, n)
	for i := range want {
		want[i] = strconv.Itoa(first + i)
	}
	l.wantTexts(l.taken(n), want...)
}

func (l *lateInsert) wantTexts(got []string, want ...string) {
	l.Helper()
	if !slices.Equal(got, want) {
		l.Fatalf("got %s, want %s", strings.Join(got, " "), strings.Join(want, " "))
	}
}
