package adopt_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres/adopt"
)

func (f *fixture) insert(key, payload string) {
	f.Helper()
	f.Exec("insert into shop (key, payload) values ($1, $2)", key, payload)
}

func TestBytesSurvive(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec("create table raw (id uuid primary key, at timestamptz not null default now(), data bytea)")
	f.Exec("create index on raw (at, id)")
	want := []byte{0, 0xff, '\'', 0x80, '\\', 'x'}
	f.Exec("insert into raw values (gen_random_uuid(), now(), $1)", want)
	src := f.subscribe(f.open(adopt.Config{Table: "raw", Columns: adopt.Columns{ID: "id", Order: []string{"at"}, Payload: "data"}, Delivered: adopt.Delete}))
	if got := f.fetch(src).Messages[0].Payload; string(got) != string(want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

// TestWhatWasInFlightGoesBeforeWhatSawIt where no index has the order. A row gets its place, others are read past it,
// and it commits. A writer that has seen it adds the next of the key.
func TestWhatWasInFlightGoesBeforeWhatSawIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	f.Exec("alter table shop add column rank bigint not null default nextval('shop_id_seq')")
	c := keyedConfig()
	c.Columns.Order = []string{"rank"}
	src := f.subscribe(f.open(c))
	tx, err := f.Connect().Begin(f.Ctx)
	f.Must(err)
	_, err = tx.Exec(f.Ctx, "insert into shop (key, payload) values ('k', 'first')")
	f.Must(err)
	for i := range 5 { // far from the head, were it only a matter of nearness
		f.Exec("insert into shop (payload) select $1::text || '-' || n from generate_series(1, 1000) n", fmt.Sprint(i))
		for n := 0; n < 1000; {
			b := f.fetch(src)
			n += len(b.Messages)
			f.settle(src, b)
		}
	}
	f.Must(tx.Commit(f.Ctx))
	f.insert("k", "second")
	f.want(f.fetch(src), "first", "second")
}

// TestLateIsDelivered: a row that chose its place long before it was written, within the margin, comes without a sweep.
func TestLateIsDelivered(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(messageTable)
	src := f.subscribe(f.open(adopt.Config{Preset: "message", Margin: time.Minute, Sweep: time.Hour}))
	f.Exec("insert into outbox (message) values ('early')")
	b := f.fetch(src)
	f.want(b, "early")
	early := b.Messages[0].CreatedAt
	f.settle(src, b)
	for began := time.Now(); time.Since(began) < 3*adopt.SlackTime; { // others, until what was early is behind the slack
		f.Exec("insert into outbox (message) values ('another')")
		b := f.fetch(src)
		f.want(b, "another")
		f.settle(src, b)
	}
	f.Exec("insert into outbox (ts, message) values ($1, 'late')", early.Add(-time.Microsecond))
	f.want(f.fetch(src), "late")
}

// TestLockedRowDelaysNoLease: a transaction holds a lock on a row that must be settled.
func TestLockedRowDelaysNoLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	f.insert("", "a")
	src := f.subscribe(f.open(keyedConfig()))
	b := f.fetch(src)
	tx, err := f.Connect().Begin(f.Ctx)
	f.Must(err)
	_, err = tx.Exec(f.Ctx, "select from shop for update")
	f.Must(err)
	settled := make(chan error, 1)
	go func() { settled <- src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b}) }()
	f.Eventually("settling waits for the lock", func() bool {
		return f.Number("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") == 1
	})
	f.Must(src.Renew(f.Ctx))
	f.Must(tx.Rollback(f.Ctx))
	f.Must(<-settled)
}

// TestRowWithoutPlaceIsDelivered: a column of the order is NULL, and no read can continue behind such a
// row.
func TestRowWithoutPlaceIsDelivered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		order   []string
		without string // a row's at and rank
		workers int
	}{
		"one column":          {[]string{"at"}, "null, 1", 0},
		"one of two":          {[]string{"at", "rank"}, "now(), null", 0},
		"one of two, workers": {[]string{"at", "rank"}, "now(), null", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.Exec("create table loose (id int primary key, at timestamptz, rank int, data text)")
			f.Exec("create index on loose (" + strings.Join(c.order, ", ") + ", id)")
			f.Exec("insert into loose values (0, " + c.without + ", 'without')")
			src := f.subscribe(f.open(adopt.Config{Table: "loose", Columns: adopt.Columns{ID: "id", Order: c.order, Payload: "data"},
				Delivered: adopt.Delete, Margin: time.Millisecond, Sweep: 100 * time.Millisecond, Workers: c.workers}))
			b := f.fetch(src)
			f.want(b, "without")
			f.settle(src, b)
			for i, place := range []string{"now(), 1", c.without, "now(), 1", "now(), 1"} {
				f.Exec(fmt.Sprintf("insert into loose values (%d, %s, 'row')", i+1, place))
				b := f.fetch(src)
				f.want(b, "row")
				f.settle(src, b)
			}
		})
	}
}

// TestEachRowComesOnce, without an index and with workers, fetches on while nothing is settled: every look back sees the rows
// again.
func TestEachRowComesOnce(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*adopt.Config){
		"scan":    func(c *adopt.Config) { c.Columns.Order = []string{"payload"} },
		"workers": func(c *adopt.Config) { c.Workers = 8 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.Exec(keyedTable)
			c := keyedConfig()
			c.Batch, c.Sweep, c.Margin = 5, 10*time.Millisecond, 20*time.Millisecond
			change(&c)
			src := f.subscribe(f.open(c))
			got := map[string]bool{}
			for i := range 30 {
				f.insert("", fmt.Sprint(i))
			}
			for began := time.Now(); len(got) < 30 || time.Since(began) < 300*time.Millisecond; {
				b, err := src.Fetch(f.Ctx, plenty)
				f.Must(err)
				for _, p := range payloads(b) {
					if got[p] {
						t.Fatalf("%s came twice", p)
					}
					got[p] = true
				}
			}
		})
	}
}

// TestArchive: a row that is delivered is in the archive then, and nowhere else.
func TestArchive(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	f.Exec("create schema past; create table past.sent (like shop including identity, moved timestamptz not null default now())")
	f.insert("k", "a")
	c := keyedConfig()
	c.Archive = "past.sent"
	src := f.subscribe(f.open(c))
	b := f.fetch(src)
	const archived = "select count(*) - (select count(*) from shop) from past.sent where payload = 'a' and topic = 't' and id = 1"
	if f.Number(archived) != -1 {
		t.Error("it is archived before it was confirmed")
	}
	for range 2 { // once more, as after an answer that was lost
		f.settle(src, b)
		if n := f.Number(archived); n != 1 {
			t.Errorf("%d are in the archive and not in the table, want 1", n)
		}
	}
}

// TestReadingStaysFlatUnderAPinnedSnapshot counts the pages that the next read touches
// while nothing that was deleted can be removed.
func TestReadingStaysFlatUnderAPinnedSnapshot(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	pin, err := f.Connect().Begin(f.Ctx)
	f.Must(err)
	_, err = pin.Exec(f.Ctx, "set transaction isolation level repeatable read")
	f.Must(err)
	_, err = pin.Exec(f.Ctx, "select count(*) from shop")
	f.Must(err)
	c := keyedConfig()
	c.Delivered, c.Sweep = adopt.Delete, time.Hour
	src := f.subscribe(f.open(c))
	looker := f.Connect()
	_, err = looker.Exec(f.Ctx, adopt.Settings)
	f.Must(err)
	pages := func(sql string, args ...any) (n int) {
		rows, err := looker.Query(f.Ctx, "explain (analyze, buffers, costs off, timing off) "+sql, args...)
		f.Must(err)
		for rows.Next() {
			var line string
			f.Must(rows.Scan(&line))
			if at := strings.Index(line, "shared hit="); at >= 0 && n == 0 && !strings.Contains(line, "Planning") {
				_, _ = fmt.Sscanf(line[at:], "shared hit=%d", &n)
			}
		}
		f.Must(rows.Err())
		return n
	}
	const most = 3 + 1 // an index of three levels to the head, and a page of what stands behind it
	for range 20 {
		f.Exec("insert into shop (key, payload) select 'k' || n, repeat('x', 100) from generate_series(1, 2000) n")
		for n := 0; n < 2000; {
			b := f.fetch(src)
			n += len(b.Messages)
			f.settle(src, b)
		}
		sql, args := adopt.ReadStatement(src)
		n := pages(sql, args...)
		if n > most {
			t.Fatalf("the next read touches %d pages, want at most %d", n, most)
		}
	}
	if n := pages("select id from shop order by id limit 10"); n < 500 {
		t.Errorf("reading from the beginning touches %d pages: nothing was pinned", n)
	}
}
