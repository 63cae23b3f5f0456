package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/postgres"
)

// The ring of the queue "q" in a ringLoad, and the payload of its jobs.
const (
	ringSegments     = 3
	ringSegmentBytes = 64 << 10
	ringPayload      = 200
)

// ringBound is how large docs/reference/limits.md says that the files of a queue's ring get, where jobs have a payload of this
// many bytes. The number waiting of them stay, and inflow come while a segment waits to be truncated.
func ringBound(segments, segmentBytes, payload, waiting, inflow int) int64 {
	copies := segments + 1
	if segments == 2 {
		copies = 6
	}
	job, row := payload+200, payload+80 // with indexes, at most; and without, at least
	return int64(segments*(segmentBytes+inflow*job)+copies*waiting*job)*int64(job)/int64(row) + int64(segments)*128<<10
}

// ringLoad is a load on the queue "q" whose storage is to stay within its bound.
type ringLoad struct {
	*fixture
	round   int
	next    int // the last job that was enqueued
	open    []pgx.Tx
	workers []*pgx.Conn
}

func newRingLoad(f *fixture, ordering string) *ringLoad {
	f.Exec("select penstock.create_queue('q', $1, $2, $3)", ordering, ringSegments, ringSegmentBytes)
	return &ringLoad{fixture: f}
}

// TestRingStaysFlat runs loads round after round: however much goes through the queue, its files stay within what
// docs/reference/limits.md computes, and what was not taken is still there, in order.
func TestRingStaysFlat(t *testing.T) {
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	const overlap = 100                                                // jobs of a round where transactions overlap
	alike := []string{"overlapping single jobs", "overlapping claims"} // the ring is left by them as by the others that overlap
	for name, load := range map[string]struct {
		ordering string
		stay     int // jobs that wait in the end
		jobs     int // that come in a round, at most
		workers  int // whose transactions overlap
		round    func(l *ringLoad)
	}{
		"overlapping lifo":        {"lifo", 0, overlap, 2, func(l *ringLoad) { l.overlap(overlap, "select penstock.dequeue('q') from generate_series(1, 100)", "") }},
		"overlapping keyed":       {"fifo", 0, overlap, 2, func(l *ringLoad) { l.overlap(overlap, "select from penstock.dequeue('q', 100)", "key") }},
		"overlapping single jobs": {"fifo", 0, overlap, 2, func(l *ringLoad) { l.overlap(overlap, "select penstock.dequeue('q') from generate_series(1, 100)", "") }},
		"overlapping claims": {"fifo", 0, overlap, 2, func(l *ringLoad) {
			l.overlap(overlap, "select from penstock.ack_many('q', array(select lease from penstock.claim('q', 100)))", "")
		}},
		"a job of a group each":    {"fifo", 10, 250, 0, func(l *ringLoad) { l.leave("group_key", 10, 1, 250) }},
		"a job of a priority each": {"fifo", 10, 250, 0, func(l *ringLoad) { l.leave("priority", 10, 1, 250) }},
		"the bottom of a lifo":     {"lifo", 10, 250, 0, func(l *ringLoad) { l.leave("", 10, 1, 250) }},
		"a stopped group of 1,000": {"fifo", 1000, 1000, 0, func(l *ringLoad) {
			if l.round < 10 {
				l.leave("group_key", 10, 100, 160)
			} else {
				l.leave("", 0, 0, 1000)
			}
		}},
	} {
		for _, pinned := range []bool{false, true} {
			if (!pinned || slices.Contains(alike, name)) && !testseed.Long() {
				continue // pinned is harder
			}
			t.Run(fmt.Sprintf("%s/pinned=%t", name, pinned), func(t *testing.T) {
				t.Parallel()
				l := newRingLoad(newFixture(t, postgres.Options{}), load.ordering)
				for range load.workers {
					l.workers = append(l.workers, l.Connect())
				}
				if pinned {
					l.pin()
				}
				// What open transactions have taken waits. Until they have ended a segment is in use, and until those have
				// that came meanwhile it has locks.
				l.wantFlat(load.stay+(load.workers+1)*load.jobs*min(load.workers, 1), (2*load.workers+1)*load.jobs, func() { load.round(l) })
				for len(l.open) > 0 {
					l.commitOldest()
				}
				l.wantRest(load.stay)
			})
		}
	}
}

// wantFlat repeats a round of the load until more has gone through the ring than its files may take.
func (l *ringLoad) wantFlat(waiting, inflow int, round func()) {
	l.Helper()
	bound := ringBound(ringSegments, ringSegmentBytes, ringPayload, waiting, inflow)
	through := bound * int64(testseed.Rounds())
	var most int64
	for ; int64(l.next*(ringPayload+80)) < through; l.round++ {
		round()
		// The first carries over the jobs left in a segment, with the second it leaves the list, with the third it is
		// free.
		l.Exec(strings.Repeat(maintainAtOnce+";", 3), pgx.QueryExecModeSimpleProtocol)
		l.maintain()
		size := l.ringSize()
		most = max(most, size)
		if size > bound {
			l.Fatalf("after %d rounds the queue has %d bytes, at most %d are promised", l.round+1, size, bound)
		}
	}
	l.Logf("%d rounds, %d bytes at most, %d are promised", l.round, most, bound)
}

func (l *ringLoad) ringSize() int64 {
	l.Helper()
	return l.Number("select sum(pg_total_relation_size(inhrelid))::bigint from pg_inherits where inhparent = 'penstock.q'::regclass")
}

// add enqueues jobs, of which the first ones have a value in a column.
func (l *ringLoad) add(first int, column, value string, all int) {
	l.Helper()
	with := func(from, to int, columns, values string) {
		if from <= to {
			l.Exec(fmt.Sprintf("insert into penstock.q (payload%s) select convert_to(rpad(i::text, %d), 'UTF8')%s from generate_series($1::int, $2::int) i", columns, ringPayload, values), from, to)
		}
	}
	if column == "" {
		first = 0
	}
	with(l.next+1, l.next+first, ", "+column, ", "+value)
	with(l.next+first+1, l.next+all, "", "")
	l.next += all
}

// overlap has a transaction of each worker open at any time, each of which has taken a round's jobs.
func (l *ringLoad) overlap(jobs int, take, column string) {
	l.Helper()
	l.add(jobs, column, "'k' || i", jobs)
	if len(l.open) == len(l.workers) {
		l.commitOldest()
	}
	tx := l.begin(l.workers[0])
	l.workers = append(l.workers[1:], l.workers[0])
	_, err := tx.Exec(l.Ctx, take)
	l.Must(err)
	l.open = append(l.open, tx)
}

func (l *ringLoad) commitOldest() {
	l.Helper()
	l.Must(l.open[0].Commit(l.Ctx))
	l.open = l.open[1:]
}

// leave enqueues some jobs and takes all, but for some of each of the first rounds, which are of another group, or come
// last.
func (l *ringLoad) leave(column string, rounds, left, jobs int) {
	l.Helper()
	if l.round >= rounds {
		left = 0
	}
	l.add(left, column, map[string]string{"group_key": "'g'", "priority": "9"}[column], jobs)
	l.wantTaken(jobs - left)
}

func (l *ringLoad) wantTaken(n int) {
	l.Helper()
	if got := l.take(l.Conn, "q", n); len(got) != n {
		l.Fatalf("took %d jobs, want %d", len(got), n)
	}
}

// wantRest takes what has stayed, of any group, and looks at its order.
func (l *ringLoad) wantRest(want int) {
	l.Helper()
	if have := l.Number("select count(*) from penstock.q"); have != int64(want) {
		l.Errorf("%d jobs are left, want %d", have, want)
	}
	rows, err := l.Conn.Query(l.Ctx, "select convert_from(payload, 'UTF8')::int from unnest(array['', 'g']) g, penstock.dequeue('q', 10000, g)")
	l.Must(err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[int])
	l.Must(err)
	if lifo := l.Number("select lifo::int from penstock._queue where name = 'q'") == 1; lifo {
		slices.Reverse(got)
	}
	if len(got) != want || !slices.IsSorted(got) {
		l.Errorf("got %d jobs, in order: %t; want all %d", len(got), slices.IsSorted(got), want)
	}
}
