package postgres_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/testseed"
)

// ringLoad is a load on the queue "q" whose storage is to stay as large as it is.
type ringLoad struct {
	*fixture
	round   int
	next    int // the last job that was enqueued
	open    []pgx.Tx
	workers []*pgx.Conn
}

// TestRingStaysFlat runs loads round after round: after the second half of them the queue's tables
// are hardly larger than after the first, and what was not taken is still there, in order.
func TestRingStaysFlat(t *testing.T) {
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	for name, load := range map[string]struct {
		ordering string
		round    func(l *ringLoad)
		rest     func(l *ringLoad)
	}{
		"overlapping dequeues":    {"fifo", func(l *ringLoad) { l.overlap("select from penstock.dequeue('q', 40)", "") }, nil},
		"overlapping single jobs": {"fifo", func(l *ringLoad) { l.overlap("select penstock.dequeue('q') from generate_series(1, 40)", "") }, nil},
		"overlapping lifo":        {"lifo", func(l *ringLoad) { l.overlap("select penstock.dequeue('q') from generate_series(1, 40)", "") }, nil},
		"overlapping keyed":       {"fifo", func(l *ringLoad) { l.overlap("select from penstock.dequeue('q', 40)", "key") }, nil},
		"overlapping claims": {"fifo", func(l *ringLoad) {
			l.overlap("select from penstock.ack_many('q', array(select lease from penstock.claim('q', 40)))", "")
		}, nil},
		"a job of a group each":     {"fifo", func(l *ringLoad) { l.leave("group_key") }, func(l *ringLoad) { l.wantRest("group_key") }},
		"a job of a priority each":  {"fifo", func(l *ringLoad) { l.leave("priority") }, nil},
		"the bottom of a lifo":      {"lifo", func(l *ringLoad) { l.leave("") }, nil},
		"a stopped group of 10,000": {"fifo", func(l *ringLoad) { l.stopped() }, func(l *ringLoad) { l.wantRest("group_key") }},
	} {
		for _, pinned := range []bool{false, true} {
			if !pinned && !testseed.Draw(t.Name()+name, 9) {
				continue // pinned is harder
			}
			t.Run(fmt.Sprintf("%s/pinned=%t", name, pinned), func(t *testing.T) {
				t.Parallel()
				l := &ringLoad{fixture: newJobs(t, load.ordering)}
				for range 5 {
					l.workers = append(l.workers, l.Connect())
				}
				if pinned {
					l.pin()
				}
				l.wantFlat(func() { load.round(l) })
				for len(l.open) > 0 {
					l.commitOldest()
				}
				if load.rest != nil {
					load.rest(l)
				}
			})
		}
	}
}

// wantFlat repeats a round of the load.
func (l *ringLoad) wantFlat(round func()) {
	l.Helper()
	var early int64
	rounds := max(60, testseed.Steps(120)) // the ring turns about four times
	for l.round = range rounds {
		round()
		l.Exec(maintainAtOnce, pgx.QueryExecModeSimpleProtocol)
		l.maintain()
		switch size := l.ringSize(); {
		case l.round < rounds/2:
			early = max(early, size)
		case float64(size) > 1.2*float64(early):
			l.Fatalf("after %d rounds the queue has %d bytes, at most %d in the first %d", l.round+1, size, early, rounds/2)
		}
	}
	l.Logf("%d bytes at first, %d at last", early, l.ringSize())
}

func (l *ringLoad) ringSize() int64 {
	l.Helper()
	return l.Number("select sum(pg_total_relation_size(inhrelid))::bigint from pg_inherits where inhparent = 'penstock.q'::regclass")
}

// add enqueues jobs, of which the first ones have a value in a column.
func (l *ringLoad) add(first int, column, value string, all int) {
	l.Helper()
	if column == "" {
		column, value = "payload", "convert_to(i::text, 'UTF8')"
	}
	with := func(from, to int, columns, values string) {
		if from <= to {
			l.Exec(fmt.Sprintf("insert into penstock.q (payload%s) select convert_to(rpad(i::text, 200), 'UTF8')%s from generate_series($1::int, $2::int) i", columns, values), from, to)
		}
	}
	if column == "payload" {
		with(l.next+1, l.next+all, "", "")
	} else {
		with(l.next+1, l.next+first, ", "+column, ", "+value)
		with(l.next+first+1, l.next+all, "", "")
	}
	l.next += all
}

// overlap has five transactions open at any time, each of which has taken forty jobs.
func (l *ringLoad) overlap(take, column string) {
	l.Helper()
	if column == "key" {
		l.add(40, "key", "'k' || i", 40)
	} else {
		l.add(0, "", "", 40)
	}
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

// leave enqueues some jobs and takes all, but for one in each segment at first, which is of another
// group, or comes last.
func (l *ringLoad) leave(column string) {
	l.Helper()
	left := 0
	if l.round < 40 && l.round%4 == 0 {
		left = 1
	}
	switch column {
	case "group_key":
		l.add(left, "group_key", "'g'", 60)
	case "priority":
		l.add(left, "priority", "9", 60)
	default:
		l.add(0, "", "", 60)
	}
	l.wantTaken(60 - left)
}

func (l *ringLoad) wantTaken(n int) {
	l.Helper()
	if got := l.take(l.Conn, "q", n); len(got) != n {
		l.Fatalf("took %d jobs, want %d", len(got), n)
	}
}

// stopped has ten thousand jobs of a group that nobody works for, which came among others.
func (l *ringLoad) stopped() {
	l.Helper()
	group := 0
	if l.round < 20 {
		group = 500
	}
	l.add(group, "group_key", "'g'", 60+group)
	l.wantTaken(60)
}

// wantRest takes the jobs of the group and looks at their order.
func (l *ringLoad) wantRest(string) {
	l.Helper()
	want := l.Number("select count(*) from penstock.q")
	rows, err := l.Conn.Query(l.Ctx, "select convert_from(payload, 'UTF8')::int from penstock.dequeue('q', 10000, 'g')")
	l.Must(err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[int])
	l.Must(err)
	if int64(len(got)) != want || !slices.IsSorted(got) {
		l.Errorf("got %d jobs of the group, in order: %t; want all %d", len(got), slices.IsSorted(got), want)
	}
}
