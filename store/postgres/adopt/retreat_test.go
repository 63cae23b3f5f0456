package adopt_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/store/postgres/adopt"
)

// TestRowFoundBehindAHeadThatGoesBack: two sweeps in a row find something, so the head goes back to the last of it. By
// then a third has found a row that stands ahead of that place, and is also read there.
func TestRowFoundBehindAHeadThatGoesBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(`create table outbox (ts timestamptz not null default clock_timestamp(), id bigserial, message text, primary key (ts, id)) partition by range (ts);
		create table part partition of outbox default`)
	src := f.subscribe(f.open(adopt.Config{Preset: "message", Margin: time.Millisecond, Sweep: time.Millisecond}))
	f.Exec("insert into outbox (ts, message) values (now() + interval '1 year', 'far ahead')")
	f.want(f.fetch(src), "far ahead") // and is not settled, so from now on only sweeps look at the table

	gate := shutGate(f)
	gate.pass("") // what began before
	gate.pass("insert into outbox (message) values ('first')")
	gate.pass("insert into outbox (message) values ('second')")
	gate.pass("") // it asks for the place of the second
	gate.pass("insert into outbox (message) values ('third')")
	gate.open()
	var got []string
	for len(got) < 3 {
		got = append(got, payloads(f.fetch(src))...)
	}
	if slices.Sort(got); !slices.Equal(got, []string{"first", "second", "third"}) {
		t.Errorf("got %q, want each row once", got)
	}
}

// gate lets statements look at the outbox one at a time: it locks the partition, since a statement locks the table
// itself once more when it is prepared.
type gate struct {
	f          *fixture
	shut, next *pgx.Conn // shut has the lock
}

func shutGate(f *fixture) *gate {
	g := &gate{f, f.Connect(), f.Connect()}
	f.Must(g.lock(g.shut))
	return g
}

func (g *gate) lock(conn *pgx.Conn) error {
	_, err := conn.Exec(g.f.Ctx, "begin; lock table part in access exclusive mode")
	return err
}

// pass waits for a statement, and lets it alone pass. It sees what sql has done.
func (g *gate) pass(sql string) {
	g.f.Helper()
	g.waiting(1)
	behind := make(chan error, 1)
	go func() { behind <- g.lock(g.next) }()
	g.waiting(2)
	_, err := g.shut.Exec(g.f.Ctx, sql+"; commit")
	g.f.Must(err)
	g.f.Must(<-behind)
	g.shut, g.next = g.next, g.shut
}

// open waits for another statement, so that those before it have had their effect, and lets all pass.
func (g *gate) open() {
	g.f.Helper()
	g.waiting(1)
	_, err := g.shut.Exec(g.f.Ctx, "commit")
	g.f.Must(err)
}

func (g *gate) waiting(n int64) {
	g.f.Helper()
	g.f.Eventually("statements wait for the lock", func() bool {
		return g.f.Number("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") == n
	})
}
