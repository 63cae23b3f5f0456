package postgres_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres"
)

// sample has the maintenance of a queue take samples of all, as if another minute had begun, and returns them by name.
func (f *fixture) sample(queue string) map[string][]admin.Sample {
	f.Helper()
	f.Exec("select setval('penstock._sampled', 17179869183)")
	for due := true; due; due = f.Number("select count(*) from (select where pg_sequence_last_value('penstock._sampled') & 17179869183 < 17179869183) due") > 0 {
		f.Exec("select setval($1::regclass, 0)", fmt.Sprintf(`penstock."_%s.maintained"`, queue)) // else it comes once a second
		f.Exec("select penstock.maintain_queue($1)", queue)
	}
	return f.samples()
}

func (f *fixture) samples() map[string][]admin.Sample {
	f.Helper()
	all, err := f.store.Samples(f.Ctx, time.Hour)
	f.Must(err)
	by := map[string][]admin.Sample{}
	for _, one := range all {
		by[one.Queue+one.Outbox+one.Subscription] = one.Points
	}
	return by
}

func (f *fixture) heartbeat(queue string, started time.Time, done, failed, dead int64) {
	f.Helper()
	f.Must(f.store.DriverQueue(queue).(driver.Heartbeater).Heartbeat(f.Ctx, admin.Worker{Name: "w", StartedAt: started, Done: done, Failed: failed, Dead: dead}))
}

// A sample has the numbers that were given, and the attempts that ended as heartbeats say, also where a worker has started again.
func TestSamples(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	f.Exec("select penstock.publish('orders', 'x', 't') from generate_series(1, 4)")
	f.settleAll(src, driver.Verdict{Outcome: driver.Dead, Failures: refusedOnce("no")}, f.fetchSome(src))
	f.Exec("select penstock.publish('orders', 'x', 't')")
	f.Exec("select penstock.create_queue('q'), penstock.create_queue('idle')")
	f.Exec("select penstock.enqueue('q', 'x') from generate_series(1, 3)")
	f.Exec("select penstock.dead_letter('q', lease, 'no') from penstock.claim('q')")
	began := time.Now()
	f.heartbeat("q", began, 5, 2, 1)
	f.sample("q")
	f.heartbeat("q", began, 9, 4, 1)
	f.sample("q")
	f.heartbeat("q", began.Add(time.Minute), 0, 0, 0)
	f.heartbeat("q", began.Add(time.Minute), 2, 0, 1)
	f.Exec("select penstock.report('q', 0, '{\"worker\": \"odd\", \"done\": \"many\", \"failed\": -1}')")
	all := f.sample("q")
	for name, want := range map[string]string{"q": "[3 0 0 1] [3 4 2 1] [3 6 3 1]", "idle": "[0 0 0 0]", "orderssub": "[5 4 0 4]"} {
		var got []string
		for _, p := range all[name] {
			got = append(got, fmt.Sprint([]int64{p.In, p.Out, p.Failed, p.Dead}))
		}
		if got := strings.Join(slices.Compact(got), " "); got != want { // a minute may have ended meanwhile: then there is another sample
			t.Errorf("%s: in, out, failed, dead %s, want %s", name, got, want)
		}
		if old := len(all[name]) > 0 && all[name][0].OldestAge > 0; old != (name != "idle") {
			t.Errorf("%s: something waits: %t", name, old)
		}
	}

	// A relay takes them as well.
	rows := len(f.samples()["q"])
	f.Exec("select setval('penstock._sampled', 17179869183)")
	for n := int64(0); n < 17179869183; n = f.Number("select pg_sequence_last_value('penstock._sampled') & 17179869183") {
		f.Must(f.store.Maintain(f.Ctx, "orders"))
	}
	if n := len(f.samples()["q"]); n <= rows {
		t.Errorf("%d samples, and %d after a relay's maintenance", rows, n)
	}

	// Roles get those of what they look after.
	role, asRole := f.role()
	f.Exec(fmt.Sprintf("select penstock.grant_operator('idle', '%s')", role))
	if found, err := openStore(t, asRole, postgres.Options{}).Samples(f.Ctx, time.Hour); err != nil || len(found) != 1 || found[0].Queue != "idle" {
		t.Errorf("an operator of the queue idle gets %v, %v", found, err)
	}
	role, asRole = f.role()
	f.Exec(fmt.Sprintf("select penstock.grant_relay('%s')", role))
	if found, err := openStore(t, asRole, postgres.Options{}).Samples(f.Ctx, time.Hour); err != nil || len(found) != 1 || found[0].Subscription != "sub" {
		t.Errorf("a relay gets %v, %v", found, err)
	}
}

// Where done jobs are kept, a sample shows how long those since the last one took, by kind and worker.
func TestSamplesOfDoneJobs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_queue('q'), penstock.create_queue('forgets')")
	f.Exec("select penstock.set_queue('q', keep_done => '1 day')")
	// A minute may end while jobs are done. Then they would be in two samples: no session takes samples while this one has their lock.
	pause := func() (resume func()) {
		tx, err := f.Connect().Begin(f.Ctx)
		f.Must(err)
		_, err = tx.Exec(f.Ctx, "select pg_advisory_xact_lock('penstock._sample'::regclass::oid::int, 0)")
		f.Must(err)
		return func() { f.Must(tx.Rollback(f.Ctx)) }
	}
	resume := pause()
	done := func(queue, kind, worker string, jobs int) {
		f.Exec("select penstock.enqueue($1, 'x', kind => $2) from generate_series(1, $3)", queue, kind, jobs)
		f.Exec("select penstock.ack_many($1, array(select lease from penstock.claim($1, $2::int, worker => $3)))", queue, jobs, worker)
	}
	done("forgets", "", "ann", 1)
	done("q", "welcome", "ann", 3)
	done("q", "", "bob", 1)
	f.Exec("select penstock.enqueue('q', 'x', kind => 'tried')")
	f.Exec("select penstock.retry('q', lease, '0', 'no') from penstock.claim('q')")
	f.Exec("select penstock.maintain_queue('q')")
	f.Exec("select penstock.ack_many('q', array(select lease from penstock.claim('q', worker => 'bob')))")
	for n := range 6 {
		f.Exec(fmt.Sprintf(`alter table penstock."_q.done_%d" replica identity full`, n)) // the test updates it
	}
	// Jobs of ann ran for 2 s, of bob for 4 s. All have waited for 3 s.
	f.Exec(`update penstock."_q.done" set claimed_at = finished_at - case worker when 'ann' then interval '2 s' else '4 s' end`)
	f.Exec(`update penstock."_q.done" set created_at = claimed_at - interval '3 s', created = array_fill(claimed_at - interval '3 s', array[coalesce(cardinality(jobs), 0)])`)
	want := [][]string{{
		"{  5 [3 3] [2 4]}", "{kind  1 [3 3] [4 4]}", "{kind tried 1 [] [4 4]}", "{kind welcome 3 [3 3] [2 2]}", "{worker ann 3 [3 3] [2 2]}", "{worker bob 2 [3 3] [4 4]}"}}
	check := func() {
		t.Helper()
		all := f.sample("q")
		var got [][]string
		for _, p := range all["q"] {
			if len(p.Done) > 0 {
				var one []string
				for _, d := range p.Done {
					for _, at := range [][]float64{d.Wait, d.Run} {
						for i := range at {
							at[i] = math.Round(at[i])
						}
					}
					one = append(one, fmt.Sprint(d))
				}
				slices.Sort(one)
				got = append(got, one)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the samples say of done jobs %q, want %q", got, want)
		}
		if p := all["forgets"]; len(p) == 0 || len(p[0].Done) > 0 {
			t.Errorf("a queue that keeps no done jobs has the samples %+v", p)
		}
	}
	resume()
	check()
	check() // none was done since
	resume = pause()
	for n, kind := range []string{"a", "b", "c", "d", "e"} {
		done("q", kind, "ann", 5-n)
	}
	f.Exec(`update penstock."_q.done" set claimed_at = finished_at, created = array_fill(finished_at, array[coalesce(cardinality(jobs), 0)]), created_at = finished_at`)
	want = append(want, []string{"{  15 [0 0] [0 0]}", "{kind a 5 [0 0] [0 0]}", "{kind b 4 [0 0] [0 0]}", "{kind c 3 [0 0] [0 0]}", "{kind d 2 [0 0] [0 0]}", "{worker ann 15 [0 0] [0 0]}"})
	resume()
	check()
}

// Where the search for the oldest job takes long, it is not made each time.
func TestSamplesThatTakeLong(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_queue('q')")
	f.Exec("create sequence public.searches")
	f.Exec(`create or replace function penstock._count(queue int, most int) returns bigint[] language sql volatile as
		$$ select pg_sleep(0.07); select array[0, 0, 0, 0, 0, nextval('public.searches') * 1000000, 0] $$`)
	for range 9 {
		f.sample("q")
	}
	all, searches := f.samples()["q"], f.Number("select last_value from public.searches")
	if len(all) < 9 || searches > 3 || all[0].OldestAge != time.Second || all[3].OldestAge != time.Second || all[len(all)-1].OldestAge != time.Duration(searches)*time.Second {
		t.Errorf("nine samples, of 70 ms each, have searched %d times: %v", searches, all)
	}
}

// Samples that are too old go with their segment, also under a pinned snapshot. Off, none are taken, and none are left.
func TestSamplesAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_queue('q')")
	defer pin(t, f.URL)()
	f.sample("q")
	turn := func() int64 {
		f.Exec("update penstock._sampling set turned = clock_timestamp() - interval '3 hours 1 second'")
		f.sample("q")
		return f.Number("select pg_sequence_last_value('penstock._sample_slot')")
	}
	last := f.Number("select pg_sequence_last_value('penstock._sample_slot')")
	for range 6 {
		for range 5 {
			f.sample("q")
		}
		if slot := turn(); slot == last {
			t.Fatalf("segment %d is written to, after three hours", slot)
		} else {
			last = slot
		}
		if n := f.Number("select count(*) from penstock._sample"); n > 9 { // six of the segment before, one or two of this one
			t.Fatalf("%d samples are left of two segments of six", n)
		}
	}
	if size := f.Number("select pg_relation_size('penstock._sample_0') + pg_relation_size('penstock._sample_1')"); size > 2*8192 {
		t.Errorf("%d bytes", size)
	}
	f.Exec("update penstock._sampling set turned = clock_timestamp() + interval '1 year'") // the clock was set back
	if slot := last; turn() == slot {
		t.Error("the segment stays for a year")
	}

	f.Exec("select penstock.keep_samples('0')")
	if all := f.sample("q"); len(all) > 0 || f.Number("select pg_relation_size('penstock._sample_0') + pg_relation_size('penstock._sample_1')") > 0 {
		t.Errorf("off: %v", all)
	}
	f.Exec("select penstock.keep_samples('1 hour')")
	if all := f.sample("q"); len(all["q"]) != 1 {
		t.Errorf("on again: %v", all)
	}
	for _, bad := range []string{"'-1 s'", "'8 days'", "null"} {
		if _, err := f.Conn.Exec(f.Ctx, "select penstock.keep_samples("+bad+")"); err == nil {
			t.Errorf("keep_samples(%s): no error", bad)
		}
	}
}

// A round continues where the last call has stopped, has each series once, and leaves out one that fails.
func TestSamplesOfMany(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("insert into penstock._subscription (outbox, name) select 'orders', 's' || i from generate_series(1, 200) i")
	f.Exec("select penstock.create_queue('broken'), penstock.create_queue('q')")
	f.Exec(`drop table penstock.broken cascade`)
	f.Exec("select setval('penstock._sampled', 17179869183)")
	for more, calls := true, 0; more; calls++ {
		if calls > 300 {
			t.Fatal("the round does not end")
		}
		if err := f.Conn.QueryRow(f.Ctx, "select penstock._take_samples()").Scan(&more); err != nil {
			more = true // that of the broken queue; the next call continues behind it
		}
	}
	if n, of := f.Number("select count(*) from penstock._sample"), f.Number("select count(distinct series) from penstock._sample"); n != 201 || of != 201 {
		t.Errorf("%d samples of %d series, want one of each of 201", n, of)
	}
}
