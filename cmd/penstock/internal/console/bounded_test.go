package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/store/postgres"
)

// A page costs no more than docs/operations/console.md promises, however many jobs, dead letters and messages there are.
// PENSTOCK_CONSOLE_LOAD=1 has ten million ready jobs, five million messages, and a million jobs of every other state; 0.1 has a tenth of that.
// Then ten browsers look for a minute: the p99 of each page is below 300 ms, and the console's sessions take less than 3% of a core. It also
// logs how long calls take while workers run, and how much they slow the workers.
func TestLookingReadsNoMoreOfMore(t *testing.T) {
	url := postgrestest.Database(t)
	s, err := postgres.Open(t.Context(), url, postgres.Options{})
	must(t, err)
	must(t, s.Migrate(t.Context()))
	must(t, s.CreateQueue(t.Context(), "mails", penstock.FIFO))
	day := 24 * time.Hour
	must(t, s.SetQueue(t.Context(), "mails", penstock.QueueSettings{KeepDone: &day}))
	must(t, s.CreateOutbox(t.Context(), "orders"))
	source, err := s.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "billing", Holder: "r"})
	must(t, err)
	must(t, source.Close(t.Context()))
	s.Close()
	db, err := pgx.Connect(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { db.Close(t.Context()) })
	filled := [8]int{}
	fillUp := func(jobs, dead, messages int) {
		filling, err := pgx.Connect(t.Context(), url) // a separate session: its page accesses are known when it has ended
		must(t, err)
		for i, sql := range []string{
			"insert into penstock.mails (group_key, priority, payload) select (i % 10)::text, (i % 3)::smallint, '\\x78' from generate_series($1::int + 1, $2::int) i",
			`insert into penstock._dead_job (queue, id, attempt, created_at, priority, group_key, payload, failures)
			 select q.id, 1000000000 + i, 25, now(), 0, (i % 10)::text, '\x78', jsonb_build_array(jsonb_build_object('attempt', 25, 'at', now(), 'error', 'refused by host ' || i % 7))
			   from penstock._queue q, generate_series($1::int + 1, $2::int) i`,
			"insert into penstock.orders (key, topic, payload) select i::text, 't', '\\x78' from generate_series($1::int + 1, $2::int) i",
			// running, delayed and waiting jobs, and heartbeats
			`insert into penstock._lease (queue, lease_until, id, attempt, created_at, priority, worker, group_key, payload)
			 select q.id, now() + interval '1 hour' + i * interval '1 ms', 2000000000 + i, 1, now(), 0, 'w' || i % 50, (i % 10)::text, '\x78' from penstock._queue q, generate_series($1::int + 1, $2::int) i`,
			`insert into penstock._scheduled (queue, due, id, attempt, created_at, priority, group_key, payload)
			 select q.id, now() + interval '1 hour' + i * interval '1 ms', 3000000000 + i, 0, now(), 0, (i % 10)::text, '\x78' from penstock._queue q, generate_series($1::int + 1, $2::int) i`,
			`insert into penstock._scheduled (queue, due, id, attempt, created_at, priority, group_key, key, payload)
			 select q.id, 'infinity', 4000000000 + i, 0, now(), 0, (i % 10)::text, 'k' || i % 100, '\x78' from penstock._queue q, generate_series($1::int + 1, $2::int) i`,
			`insert into penstock._lease (queue, lease_until, claimed_at, priority, worker, group_key, report)
			 select -q.id, now() + interval '1 minute', now(), 0, 'w' || i % 50, '', '{"running": 1}' from penstock._queue q, generate_series($1::int + 1, $2::int) i`,
			`insert into penstock."_mails.done" (worker, group_key, priority, id, attempt, created_at)
			 select 'w', (i % 10)::text, 0, 5000000000 + i, 1, now() from generate_series($1::int + 1, $2::int) i`,
		} {
			to := []int{jobs, dead, messages, dead, dead, dead, dead, dead}[i]
			_, err := filling.Exec(t.Context(), sql, filled[i], to)
			must(t, err)
			filled[i] = to
		}
		_, err = filling.Exec(t.Context(), `do $$ declare r regclass; begin -- nobody else is to touch them
			for r in select oid from pg_class where relnamespace = 'penstock'::regnamespace and relkind = 'r' loop
				execute format('alter table %s set (autovacuum_enabled = off)', r);
			end loop;
		end $$`)
		must(t, err)
		_, err = filling.Exec(t.Context(), "vacuum analyze")
		must(t, err)
		_, err = filling.Exec(t.Context(), "delete from pg_statistic where starelid::regclass::text like 'penstock._lease%'") // as in the first minutes of a busy queue
		must(t, err)
		must(t, filling.Close(t.Context()))
	}
	part, err := strconv.ParseFloat(os.Getenv("PENSTOCK_CONSOLE_LOAD"), 64)
	loaded := err == nil
	if loaded {
		fillUp(int(10_000_000*part), int(1_000_000*part), int(5_000_000*part))
	} else {
		fillUp(110_000, 50_000, 110_000)
	}
	var tables, deadPages int64
	must(t, db.QueryRow(t.Context(), "select count(*) from pg_tables where schemaname = 'penstock'").Scan(&tables))
	must(t, db.QueryRow(t.Context(), "select pg_total_relation_size('penstock._dead_job') / 8192").Scan(&deadPages))
	const (
		rowPages = 3 + 1 // an index of three levels, and the row
		counted  = 1_000 // of each kind
		groups   = 10    // with as many jobs each, which are apart, each in its own page
		window   = 5_000 // dead letters that a filter scans at a time
	)
	dead := func(letters int64) int64 { return deadPages*letters/int64(filled[1]) + 1 } // which are next to each other
	const (
		leases     = 10_000 // of which the longest are shown
		heartbeats = 5_000
		priorities = 3  // the newest of each are looked at
		toAPage    = 25 // at least, of leases, heartbeats, delayed and waiting jobs, which are next to each other
	)
	most := map[string]int64{
		"/status":              groups*(counted+1) + dead(counted) + counted + 3*counted/toAPage, // messages; running, delayed and waiting jobs
		"/queues/mails/groups": groups*(counted+1) + dead(10_000) + 3*10_000/toAPage,
		"/queues/mails/jobs?state=ready&group=3&kind=none":          window,
		"/queues/mails/jobs?state=ready&group=3&kind=none&newest=1": priorities * window,
		"/queues/mails/jobs?state=running&group=none":               window / toAPage,
		"/queues/mails/jobs?state=running&older_than=1h&newest=1":   window / toAPage,
		"/queues/mails/jobs?state=delayed&key=none":                 window / toAPage,
		"/queues/mails/jobs?state=delayed&newest=1&key=none":        window / toAPage,
		"/queues/mails/jobs?state=waiting&key=none":                 window / toAPage,
		"/queues/mails/jobs?state=waiting&newest=1&key=none":        window / toAPage,
		"/queues/mails/done":                                        window / toAPage, // the latest fifty are next to each other
		"/workers":                                                  (heartbeats + leases) / toAPage,
		"/queues/mails/dead":                                        dead(counted),
		"/queues/mails/dead?group=3&after=1000005000":               2 * dead(window), // their numbers, and what matches
		"/queues/mails/dead/causes":                                 dead(10_000),
		"/queues/mails/running":                                     leases / toAPage,
		"/outboxes/orders/subscriptions/billing/parked":             0,
	}
	for path, rows := range most {
		s, err := postgres.Open(t.Context(), url, postgres.Options{})
		must(t, err)
		d := serve(t, s)
		before := touched(t, db)
		code, text := d.ask("r", "GET", "/api/v1"+path, "")
		if strings.HasSuffix(path, "none") && !strings.Contains(string(text), `"looked_at":5000`) || path == "/workers" && !strings.Contains(string(text), `"worker":"w49"`) {
			t.Errorf("%s: %.300s", path, text)
		}
		if code != 200 || path == "/status" && !strings.Contains(string(text), `"at_least":["backlog"]`) {
			t.Fatalf("%s: %d %s", path, code, text)
		}
		s.Close()
		pages, most := touched(t, db)-before, rows+tables*rowPages // a row of each table
		t.Logf("%s: %d pages of %d", path, pages, most)
		if pages > most {
			t.Errorf("%s reads %d pages, want at most %d", path, pages, most)
		}
	}
	if loaded {
		tenBrowsers(t, url)
		whileWorking(t, url, slices.Collect(maps.Keys(most)))
	}
}

// touched is how many pages the ended sessions of the database have accessed.
func touched(t *testing.T, db *pgx.Conn) (pages int64) {
	t.Helper()
	for others := 1; others > 0; {
		must(t, db.QueryRow(t.Context(), "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()").Scan(&others))
	}
	var all struct{ Hit, Read int64 }
	var text []byte
	must(t, db.QueryRow(t.Context(), "select pg_stat_clear_snapshot()::text || json_build_object('Hit', sum(heap_blks_hit + coalesce(idx_blks_hit, 0)), 'Read', sum(heap_blks_read + coalesce(idx_blks_read, 0)))::text from pg_statio_user_tables").Scan(&text))
	must(t, json.Unmarshal(text, &all))
	return all.Hit + all.Read
}

// tenBrowsers open one page after the other, every two seconds each, for a minute.
func tenBrowsers(t *testing.T, url string) {
	s, err := postgres.Open(t.Context(), url+"&application_name=looked", postgres.Options{})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	d := serve(t, s)
	db, err := pgx.Connect(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { db.Close(t.Context()) })
	const of = "/outboxes/orders/subscriptions/billing"
	pages := []string{"/", "/workers", "/queues/mails", "/queues/mails/jobs?state=ready&group=3", "/queues/mails/jobs?state=ready&group=3&kind=none&newest=1", "/queues/mails/jobs?state=running",
		"/queues/mails/jobs?state=delayed&key=none", "/queues/mails/jobs?state=waiting&newest=1", "/queues/mails/done", "/queues/mails/dead", "/queues/mails/dead?group=3", "/outboxes/orders", of + "/dead"}
	const lookedFor = 20 * time.Second // the jobs last for both halves
	used := func() (seconds float64) { // by the console's sessions, which stay
		rows, err := db.Query(t.Context(), "select pid from pg_stat_activity where application_name = 'looked'")
		must(t, err)
		pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
		must(t, err)
		for _, pid := range pids {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			must(t, err)
			_, rest, _ := strings.Cut(string(text), ") ")
			for _, field := range strings.Fields(rest)[11:13] { // utime and stime, in hundredths
				n, err := strconv.Atoi(field)
				must(t, err)
				seconds += float64(n) / 100
			}
		}
		return seconds
	}
	for _, page := range pages { // the sessions and the plans are there
		if code, text := d.ask("r", "GET", page, ""); code != 200 {
			t.Fatalf("%s: %d %s", page, code, text)
		}
	}
	before := used()
	var took [10]map[string][]time.Duration
	ctx, stop := context.WithTimeout(t.Context(), lookedFor)
	defer stop()
	var all sync.WaitGroup
	for i := range took {
		took[i] = map[string][]time.Duration{}
		all.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				page := pages[n%len(pages)]
				began := time.Now()
				if code, text := d.ask("r", "GET", page, ""); code != 200 {
					t.Errorf("%s: %d %s", page, code, text)
				}
				took[i][page] = append(took[i][page], time.Since(began))
				select {
				case <-ctx.Done():
				case <-time.After(2 * time.Second):
				}
			}
		})
	}
	all.Wait()
	for _, page := range pages {
		var sorted []time.Duration
		for i := range took {
			sorted = append(sorted, took[i][page]...)
		}
		slices.Sort(sorted)
		p99 := sorted[len(sorted)*99/100]
		t.Logf("%s: %d times, p50 %v, p99 %v", page, len(sorted), sorted[len(sorted)/2], p99)
		if p99 > 300*time.Millisecond {
			t.Errorf("%s: p99 is %v", page, p99)
		}
	}
	share := 100 * (used() - before) / lookedFor.Seconds()
	t.Logf("the console's sessions took %.1f%% of a core", share)
	if share > 3 {
		t.Error("that is more than 3%")
	}
}

// whileWorking logs how long each call takes while four workers run, and the jobs per second of these with and without ten readers.
func whileWorking(t *testing.T, url string, paths []string) {
	s, err := postgres.Open(t.Context(), url, postgres.Options{})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	seen, err := postgres.Open(t.Context(), url, postgres.Options{})
	must(t, err)
	t.Cleanup(func() { seen.Close() })
	d := serve(t, seen)
	const lookedFor = 20 * time.Second // the jobs last for both halves
	var took sync.Map                  // of each reader: []time.Duration
	run := func(looking bool) (perSecond float64) {
		ctx, stop := context.WithTimeout(t.Context(), lookedFor)
		defer stop()
		var all sync.WaitGroup
		var done atomic.Int64
		for n := range 4 {
			all.Go(func() {
				for i := n; ctx.Err() == nil; i++ {
					claimed, err := s.Queue("mails").Claim(ctx, driver.Claim{Group: strconv.Itoa(i % 10), Jobs: 100, Lease: time.Minute, Worker: "w"})
					for _, j := range claimed {
						if _, err = s.Queue("mails").Ack(ctx, j.Lease); err == nil {
							done.Add(1)
						}
					}
					if err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for i := range map[bool]int{true: 10}[looking] {
			all.Go(func() {
				path := paths[i%len(paths)]
				var times []time.Duration
				for ctx.Err() == nil {
					began := time.Now()
					if code, text := d.ask("r", "GET", "/api/v1"+path, ""); code != 200 {
						t.Errorf("%s: %d %s", path, code, text)
					}
					times = append(times, time.Since(began))
					select { // as a browser does
					case <-ctx.Done():
					case <-time.After(2 * time.Second):
					}
				}
				took.Store(fmt.Sprint(path, " ", i), times)
			})
		}
		all.Wait()
		return float64(done.Load()) / lookedFor.Seconds()
	}
	alone := run(false)
	beside := run(true)
	took.Range(func(path, times any) bool {
		sorted := slices.Sorted(slices.Values(times.([]time.Duration)))
		t.Logf("%s: %d calls, p50 %v, p99 %v, at most %v", path, len(sorted), sorted[len(sorted)/2], sorted[len(sorted)*99/100], sorted[len(sorted)-1])
		return true
	})
	t.Logf("workers: %.0f jobs/s alone, %.0f with ten who look: %.2f", alone, beside, beside/alone)
}
