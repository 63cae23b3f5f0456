package postgres_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/store/postgres"
)

// The cost of a queue must not depend on how many there are: creating or dropping one rewrites no
// function that is not its own.
func TestCreatingAQueueRewritesNothing(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	const others = `select md5(string_agg(p.oid || ' ' || p.xmin, ',' order by p.oid)) from pg_proc p
		where p.pronamespace = 'penstock'::regnamespace and not starts_with(p.proname, '_more.') and p.proname <> 'dequeue_more'`
	before := f.text(others)
	f.Exec("select penstock.create_queue('more')")
	f.Exec("select penstock.enqueue('more', 'x')")
	f.wantText("x", "select convert_from(payload, 'UTF8') from penstock.dequeue('more')")
	f.wantText(before, others)
	f.Exec("select penstock.drop_queue('more')")
	f.wantText(before, others)
	f.wantText("0", "select count(*)::text from pg_proc where proname = 'dequeue_more' or starts_with(proname, '_more.')")
	f.wantText("0", "select count(*)::text from pg_class where relname = 'more' or starts_with(relname, '_more.')")
}

// mostOwnFunctions is how many functions a queue may have: each has a cost when queues are made, dumped, upgraded or dropped.
const mostOwnFunctions = 34

// mostObjects is how many relations, indexes among them, and functions a queue may be (docs/decisions/0011). These are its functions, a
// table, eight sequences, and for each segment a table, five indexes, and TOAST with its index.
func mostObjects(segments int64) int64 { return mostOwnFunctions + 1 + 8 + segments*8 }

// mostPages is how many pages it may touch to make a queue of two segments: docs/decisions/0011.
const mostPages = 7000

// touches returns how many pages a statement touches, also of the catalogue: the fewest of up to twenty runs that are rolled back, until two were alike.
// One may have to load the catalogue anew, when other sessions changed so much that PostgreSQL made it forget all of it.
func (f *fixture) touches(sql string) (pages int) {
	f.Helper()
	pages = math.MaxInt
	last := 0
	for range 20 {
		tx := f.begin(f.Conn)
		var plans []struct{ Plan map[string]any }
		f.Must(tx.QueryRow(f.Ctx, "explain (analyze, buffers, format json) "+sql).Scan(&plans))
		f.Must(tx.Rollback(f.Ctx))
		n := int(plans[0].Plan["Shared Hit Blocks"].(float64) + plans[0].Plan["Shared Read Blocks"].(float64))
		if pages = min(pages, n); n == last && n == pages {
			break
		}
		last = n
	}
	return pages
}

// The twentieth queue costs what docs/decisions/0011 says that a queue does.
func TestAQueueCostsTheSameHoweverManyThereAre(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_queue('more ' || n, segments => 2) from generate_series(1, 19) n")
	const functions = "select count(*) from pg_proc where pronamespace = 'penstock'::regnamespace"
	const objects = "select (select count(*) from pg_class) + (select count(*) from pg_proc)"
	for segments := int64(2); segments <= 3; segments++ {
		create := fmt.Sprintf("select penstock.create_queue('last %d', segments => %d)", segments, segments)
		had, was, pages := f.Number(functions), f.Number(objects), f.touches(create)
		f.Exec(create)
		if own := f.Number(functions) - had; own > mostOwnFunctions {
			t.Errorf("a queue has %d functions of its own, want at most %d", own, mostOwnFunctions)
		}
		if n := f.Number(objects) - was; n > mostObjects(segments) {
			t.Errorf("a queue of %d segments is %d relations and functions, want at most %d", segments, n, mostObjects(segments))
		}
		if segments == 2 && pages > mostPages {
			t.Errorf("to make the twentieth queue touched %d pages, want at most %d", pages, mostPages)
		}
	}
}

// The size of a segment that is empty is told without opening its indexes.
func TestStatusOfManyQueues(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_queue('q' || n, segments => 2) from generate_series(1, 50 + 3) n") // more than one statement counts
	f.Exec("select penstock.enqueue('q' || n, 'x') from generate_series(1, 53) n, generate_series(1, 2) where n % 2 = 0")
	f.Exec("truncate penstock.q4")
	all, err := f.store.QueueStatus(f.Ctx)
	f.Must(err)
	if len(all) != 53 {
		t.Fatalf("%d queues, want 53", len(all))
	}
	for _, q := range all {
		var n, ready int64
		_, err := fmt.Sscanf(q.Queue, "q%d", &n)
		f.Must(err)
		if n%2 == 0 && n != 4 {
			ready = 2
		}
		if q.Ready != ready || (q.OldestAge > 0) != (ready > 0) {
			t.Errorf("%s: %d jobs ready, the oldest for %s, want %d", q.Queue, q.Ready, q.OldestAge, ready)
		}
		for _, s := range q.Segments {
			if want := f.Number("select pg_total_relation_size($1)", fmt.Sprintf(`penstock."_%s.%d"`, q.Queue, s.Slot)); s.Bytes != want || s.Current != (s.Slot == 0) {
				t.Errorf("%s: segment %d has %d bytes (current: %v), want %d and the first to be current", q.Queue, s.Slot, s.Bytes, s.Current, want)
			}
		}
	}
}

// The name of a queue, or of the schema, is text wherever it is put: in templates, bodies and literals.
func TestQueueOfAnyName(t *testing.T) {
	t.Parallel()
	names := []string{"{end}", "{segments here}", "{segment}", "{leaf of lease}", "{if lifo}x{end if}", "{name}", "{id}", "{schema}", "{queue}", "{lease_slot}",
		"$fn$", "$$", `"'\1%I%s`, "\x010{", "Ünï.cödé", strings.Repeat("{end}", 9)}
	const schema = `{segment} {end}{id} "'`
	f := postgrestest.On(t, freshDatabase(t))
	store := openStore(t, f.URL, postgres.Options{Schema: schema})
	f.Must(store.Migrate(f.Ctx))
	works := func(name string) {
		t.Helper()
		q := store.Queue(name)
		_, err := q.Enqueue(f.Ctx, penstock.NewJob{Payload: []byte("1")}, penstock.NewJob{Payload: []byte("2"), Key: "k"}, penstock.NewJob{Payload: []byte("3"), Key: "k"})
		f.Must(err)
		for _, want := range []int{2, 1} { // of the key one at a time
			jobs, err := q.Claim(f.Ctx, driver.Claim{Jobs: 5, Lease: time.Minute})
			f.Must(err)
			if len(jobs) != want {
				t.Errorf("queue %q of schema %q: %d jobs claimed, want %d", name, schema, len(jobs), want)
			}
			for _, j := range jobs {
				_, err := q.Ack(f.Ctx, j.Lease)
				f.Must(err)
			}
		}
	}
	for i, name := range names {
		f.Must(store.CreateQueue(f.Ctx, name, []penstock.QueueOrder{penstock.FIFO, penstock.LIFO}[i%2]))
		works(name)
	}
	f.Exec("update " + pgx.Identifier{schema, "_functions"}.Sanitize() + " set hash = 'old'")
	f.Must(store.Migrate(f.Ctx)) // makes all functions anew
	for _, name := range names {
		works(name)
	}
}
