package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
)

func (f *jobsFixture) readyGroups(groups ...string) []string {
	f.Helper()
	found, err := f.queue.(driver.GroupFinder).ReadyGroups(f.Ctx, groups, "", 100)
	f.Must(err)
	return found
}

// fill enqueues jobs of groups, of which eight fill a page.
func (f *jobsFixture) fill(n int, groups ...string) {
	f.Helper()
	f.Exec("insert into penstock.jobs (group_key, payload) select g, convert_to(repeat('x', 900), 'UTF8') from generate_series(1, $1) n, unnest($2::text[]) g", n, groups)
}

// finish does all jobs of groups.
func (f *jobsFixture) finish(groups ...string) {
	f.Helper()
	for _, g := range groups {
		for {
			jobs, err := f.queue.Claim(f.Ctx, driver.Claim{Group: g, Jobs: 1000, Lease: time.Hour})
			f.Must(err)
			if len(jobs) == 0 {
				break
			}
			leases := make([]int64, len(jobs))
			for i := range jobs {
				leases[i] = jobs[i].Lease
			}
			_, err = f.queue.Ack(f.Ctx, leases...)
			f.Must(err)
		}
	}
}

// A skip map says that all is gone where a transaction has written that had not ended: its jobs are found once it commits.
func TestReadyGroupsOfALateCommit(t *testing.T) {
	t.Parallel()
	for _, many := range []int{1, 500, 1500} {
		t.Run(fmt.Sprint(many), func(t *testing.T) {
			t.Parallel()
			f := newJobsFixture(t, penstock.FIFO)
			tx, err := f.Connect().Begin(f.Ctx)
			f.Must(err)
			_, err = tx.Exec(f.Ctx, "insert into penstock.jobs (group_key, payload) select case when n = $1 then 'late' else 'others' end, 'x' from generate_series(1, $1) n", many)
			f.Must(err)
			for range 3 {
				f.fill(10, "late", "other")
				f.finish("late", "other")
				f.Exec(`select penstock."_jobs.skip_map"('late', 0::smallint)`)
				f.Exec(`select penstock."_jobs.skip_map"('other', 0::smallint)`)
			}
			if n := f.Number("select count(*) from (select distinct on (group_key) pending from penstock._skip_map where group_key in ('late', 'other') order by group_key, n desc) m where pending <> '{}'"); n != 2 {
				t.Fatalf("%d newest skip maps wait for a transaction, want 2: the test shows nothing", n)
			}
			if got := f.readyGroups(); len(got) != 0 {
				t.Errorf("before the commit %q are ready", got)
			}
			f.Must(tx.Commit(f.Ctx))
			got := f.readyGroups()
			if i := slices.Index(got, "other"); i >= 0 && many > 100 { // it has to look
				got = slices.Delete(got, i, i+1)
			}
			want := []string{"late"}
			if many > 1 {
				want = append(want, "others")
			}
			if !slices.Equal(got, want) {
				t.Errorf("after the commit %q are ready, want %q", got, want)
			}
			status, err := f.store.QueueGroups(f.Ctx, "jobs", "", 10)
			f.Must(err)
			if len(status) != len(want) || status[0].Group != "late" || status[0].Ready != 1 {
				t.Errorf("the groups are %+v, want those of the jobs that came late", status)
			}
			f.finish("late", "other", "others")
			if got := f.readyGroups(); len(got) != 0 {
				t.Errorf("after all was done %q are ready", got)
			}
		})
	}
}

// The search for groups reads a few rows for each group (queue_groups.sql): the next skip map and the next group. Of a group it
// reads the newest skip map and the jobs in its ranges. It also reads some rows beyond the last group.
const (
	nextGroupPages = 2 * rowPages
	oneGroupPages  = 2 * rowPages
)

// Looking for ready groups steps over no job that was taken, also while a snapshot is pinned.
func TestReadyGroupsStayFlat(t *testing.T) {
	t.Parallel()
	for order, name := range map[penstock.QueueOrder]string{penstock.FIFO: "fifo", penstock.LIFO: "lifo"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newJobsFixture(t, order)
			f.pin()
			groups := []string{"a", "b", "c", "d"}
			f.fill(6000, groups...)
			f.fill(1, "between b and c", "e")
			f.finish(groups...)
			for _, g := range groups { // as workers do now and then
				f.Exec(`select penstock."_jobs.skip_map"($1, 0::smallint)`, g)
				f.Exec(`select penstock."_jobs.skip_map"($1, 0::smallint)`, g)
			}
			if got := f.readyGroups(); !slices.Equal(got, []string{"between b and c", "e"}) {
				t.Errorf("%q are ready", got)
			}
			const all, twice = 6, 2 // from the group behind which they should be, and from the first
			for sql, most := range map[string]int{
				`select * from penstock."_jobs.ready"(null, '', 100)`:       (all + twice) * (nextGroupPages + oneGroupPages),
				`select * from penstock."_jobs.ready"('{a,b,e}', 'b', 100)`: twice * 3 * oneGroupPages,
			} {
				n := f.pagesOf(sql)
				t.Logf("%s reads %d pages of %d", sql, n, most)
				if n > most {
					t.Errorf("%s reads %d pages, want at most %d", sql, n, most)
				}
			}
		})
	}
}

// Counting groups steps over no job that was taken either, also when transactions have ended since, as those of workers do all the time.
func TestCountedGroupsStayFlat(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	f.pin()
	f.fill(6000, "a")
	f.fill(1, "b")
	tx, err := f.Connect().Begin(f.Ctx)
	f.Must(err)
	var xid string
	f.Must(tx.QueryRow(f.Ctx, "insert into penstock.jobs (group_key, payload) values ('a', 'x') returning pg_current_xact_id()::text").Scan(&xid))
	f.finish("a")
	for range 2 {
		f.Exec(`select penstock."_jobs.skip_map"('a', 0::smallint)`)
	}
	if n := f.Number("select count(*) from (select pending from penstock._skip_map where group_key = 'a' order by n desc limit 1) m where $1::text::xid8 = any (pending)", xid); n != 1 {
		t.Fatal("the newest skip map does not wait for the transaction: the test shows nothing")
	}
	const groups = "select * from penstock.queue_groups('jobs', '', 10)"
	f.Must(tx.Commit(f.Ctx))
	const most = 3 * 2 * 2 // three jobs, each to see that its group has one and to count it, by the skip map and by what has ended since
	pages := f.pagesIn(f.Conn, `^_jobs[.]\d$`, groups)
	t.Logf("%d pages of jobs", pages)
	if pages > most {
		t.Errorf("counting reads %d pages of jobs once a transaction has ended, want at most %d", pages, most)
	}
	all, err := f.store.QueueGroups(f.Ctx, "jobs", "", 10)
	f.Must(err)
	if len(all) != 2 || all[0].Ready != 1 || all[1].Ready != 1 {
		t.Errorf("the groups are %+v, want one job of each", all)
	}
}

// Of each group a thousand jobs are counted, and the answer shows that there are more.
func TestGroupsAreCountedUpToAThousand(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	f.fill(1000, "exactly")
	f.fill(1001, "more")
	f.Exec("insert into penstock.jobs (group_key, key, payload) select 'keyed', 'k', 'x' from generate_series(1, 1500)")
	all, err := f.store.QueueGroups(f.Ctx, "jobs", "", 10)
	f.Must(err)
	for i := range all {
		all[i].OldestAge = 0
	}
	want := []admin.GroupStatus{{Group: "exactly", Ready: 1000}, {Group: "keyed", Ready: 1, Waiting: 999, More: true}, {Group: "more", Ready: 1000, More: true}}
	if !slices.Equal(all, want) {
		t.Errorf("got %+v, want %+v", all, want)
	}
}
