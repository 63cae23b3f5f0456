package mysql

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/tables"
)

func (s onTables) Looks() tables.Options {
	return tables.Options{Margin: s.opts.Margin, Sweep: s.opts.Sweep, LookAgain: s.opts.LookAgain, Ended: time.Second, Heads: true}
}

func (s onTables) Round(ctx context.Context, row *queueRow, c driver.Claim, r *tables.Round, lost []int64, first *tables.Batch) (leases []int64, err error) {
	err = s.once(ctx, func(t *tx) error {
		leases, err = s.round(ctx, t, row, c, r, lost, first)
		return err
	})
	return leases, s.explain(s.guard.Newer(ctx, err))
}

func (s onTables) LimitedGroups(row *queueRow) tables.Args {
	return tables.WithLimits(row, "coalesce(r.n, 0)", func(text string, with tables.Args) string {
		text, _ = s.rendered(text, with)
		return text
	})
}

// candidate is a row of a claim's page.
type candidate struct {
	tables.Claimed
	attempts int
}

func (n candidate) keyed() bool { return n.Job.Key != "" }

// round is a claim's questions, and its taking, in a transaction. Leases of which no worker has heard are given
// back.
func (s onTables) round(ctx context.Context, t *tx, row *queueRow, c driver.Claim, r *tables.Round, lost []int64, first *tables.Batch) (leases []int64, err error) {
	r.Page, r.There, r.Whole = nil, false, true
	var paused bool
	var most, running, policies int
	skips, err := s.skips(ctx, t, row)
	if err != nil {
		return nil, err
	}
	b, lock := &tables.Batch{}, "share_queue"
	if r.Alone {
		lock = "lock_queue"
	}
	b.Lock(lock, row.Args(nil))
	b.Row(&r.There, "queue_state", row.Args(tables.Args{"ended": ended(r), "checked": r.Checked}), &r.Now, &r.Expired, &paused, &policies, &most, &running)
	if len(lost) > 0 {
		b.Do("end_leases", row.Args(tables.Args{"leases": lost}))
	}
	*b = append(*b, *first...)
	var found pages
	if err := s.page(ctx, t, b, row, c, r, skips, &found); err != nil {
		return nil, err
	}
	room := r.Jobs
	if r.Closed = paused || most > 0 && running >= most; r.Closed {
		room = 0
	} else if most > 0 {
		room = min(room, most-running)
	}
	if policies > 0 && room > 0 {
		limits := &tables.Batch{}
		r.RoomOf(limits, row, c.Group)
		if err := t.Run(ctx, limits); err != nil {
			return nil, err
		}
		room, r.Closed = min(room, r.RoomInGroup), r.RoomInGroup == 0
	}
	order(row, found.fresh)
	found.fresh = found.fresh[:min(len(found.fresh), r.Window)]
	keyed := slices.ContainsFunc(found.all(), candidate.keyed)
	r.Limited = keyed || len(r.Keys) > 0 || !skips || most > 0 || policies&tables.OfQueue > 0
	take, chosen := "take", room
	switch {
	case !r.Alone && (r.Limited || r.InTurn):
		chosen = 0
	case !r.Alone && room > 0:
		take, chosen = "take_beside", r.Window+len(found.tried) // of those that other claims have not locked as many as there is room for
	}
	page := choose(row, r, found, chosen)
	b = &tables.Batch{}
	var taken []string
	places := map[int64]int{}
	for i, p := range page {
		if lease := p.Job.Lease; lease != 0 {
			taken = append(taken, fmt.Sprintf("[%d,%d,%d]", lease, p.Job.ID, p.attempts+1))
			leases = append(leases, lease)
			places[p.Job.ID] = i
			p.Job.Lease = 0 // until it is read: the job may have been cancelled meanwhile
		}
		r.Page = append(r.Page, p.Claimed)
	}
	if len(leases) > 0 {
		args := row.Args(tables.Args{"group": c.Group, "leases": leases, "taken": tables.SQL(strings.Join(taken, ",")), "lease": c.Lease.Microseconds(), "room": room, "worker": c.Worker, "lock": tables.SQL("")})
		if most > 0 || r.Started || r.InTurn {
			b.Do("update {schema}.queues set turns = turns + 1 where id = {queue}", args)
		}
		switch {
		case keyed && r.Alone && skips: // one that is unique may be replaced meanwhile
			args["lock"] = tables.SQL(" for update /*!80001 of t */ skip locked")
		case keyed && r.Alone:
			args["lock"] = tables.SQL(" for update")
		}
		b.Do(take, args)
		if keyed || !r.Alone {
			b.Do("withdraw", args)
		}
		b.Rows(func(scan tables.Scan) error {
			j := penstock.Job{Group: c.Group}
			var headers []byte
			if err := scan(&j.Lease, &j.Attempt, &j.LeaseUntil, &j.ID, &j.Priority, &j.CreatedAt, &j.Key, &headers, &j.Payload); err != nil {
				return err
			}
			r.Page[places[j.ID]].Job = j
			r.Page[places[j.ID]].Job.Headers = tables.Headers(headers)
			return nil
		}, "taken", args)
		if r.Started {
			b.Do("note_starts", args)
		}
	}
	return leases, t.Finish(ctx, b)
}

// skips: claims of the queue can run side by side. MyRocks cannot skip rows that others have locked.
func (s onTables) skips(ctx context.Context, t *tx, row *queueRow) (is bool, err error) {
	if known, ok := s.beside.Load(row.ID); ok {
		return known.(bool), nil
	}
	err = t.QueryRowContext(ctx, "select coalesce(max(engine = 'InnoDB'), 0) from information_schema.tables where table_schema = ? and table_name = ?", s.opts.Schema, tableName("queue", row.Name)).Scan(&is)
	if err == nil {
		s.beside.Store(row.ID, is)
	}
	return is, err
}

// ended is whether leases have ended: it is asked second by second, unless that is long ago.
func ended(r *tables.Round) tables.SQL {
	if !r.Checks {
		return "false"
	}
	seconds := "l.second <= to_seconds(utc_timestamp(6))"
	if r.Age > 0 && r.Age < 10*time.Second {
		seconds = "l.second in (to_seconds(utc_timestamp(6))"
		for i := range int(r.Age.Seconds()) + 2 {
			seconds += fmt.Sprintf(", to_seconds(utc_timestamp(6)) - %d", i+1)
		}
		seconds += ")"
	}
	return tables.SQL("exists (select 1 from {schema}.leases l force index (leases_second) where l.queue_id = {queue} and " + seconds + " and l.until > {checked} and l.until <= utc_timestamp(6))")
}

// pages are the finds of a claim: jobs of its ranges that were never claimed, and those that must be tried again. heads are the first jobs of keys, in none of the ranges.
type pages struct{ fresh, tried, heads []candidate }

func (p pages) all() []candidate { return slices.Concat(p.fresh, p.tried, p.heads) }

// encoded are keys, which are any bytes, as the content of a JSON array.
func encoded(keys []string) string {
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = `"` + base64.StdEncoding.EncodeToString([]byte(key)) + `"`
	}
	return strings.Join(texts, ",")
}

// page sends b, and with it asks for the next of the jobs that were never claimed, and of those that must be tried again.
//
// The engines walk over deleted rows, and stop at the end of a range only at a row that is there. So a claim reads the ranges of each priority that is in use,
// and otherwise looks whether there is a row of any other. A priority of which this process has found one is in use from then on, and is read in another round trip.
//
// A LIFO queue reads its index backwards, where RocksDB does not stop at all. So its ranges are first read forwards, in another round trip. That finds those with
// few jobs. Of the others the last jobs are asked for, however many there are.
func (s onTables) page(ctx context.Context, t *tx, b *tables.Batch, row *queueRow, c driver.Claim, r *tables.Round, innodb bool, found *pages) error {
	args := row.Args(tables.Args{"group": c.Group, "window": r.Window, "tried": r.Tried})
	_, keyed := s.keyed.Load(row.ID)
	if !keyed { // else jobs may wait for others of their key: to plan that takes a tenth of a claim
		args["blocked"] = tables.SQL("false")
	}
	ask := func(from string, ranges []string, seqs []int64) {
		b.Rows(func(scan tables.Scan) error {
			n := candidate{Claimed: tables.Claimed{Fresh: true}}
			err := scan(&n.Job.Priority, &n.TS, &n.Job.ID, &n.Waits, &n.Job.Key)
			found.fresh = append(found.fresh, n)
			return err
		}, "page_new", args.With(tables.Args{"from": tables.SQL(from), "ranges": tables.SQL(strings.Join(ranges, " or ")), "seqs": seqs}))
	}
	if len(r.Keys) > 0 {
		r.Firsts = map[string]tables.Claimed{}
		b.Rows(func(scan tables.Scan) error {
			n, may := candidate{Claimed: tables.Claimed{Head: true}}, false
			err := scan(&n.Job.Key, &n.Job.ID, &n.Job.Priority, &n.TS, &may)
			if r.Firsts[n.Job.Key] = n.Claimed; may && !slices.ContainsFunc(r.Ranges, func(in tables.Range) bool { return in.Has(n.Claimed) }) {
				found.heads = append(found.heads, n)
			}
			return err
		}, "page_heads", args.With(tables.Args{"keys": tables.SQL(encoded(r.Keys))}))
	}
	const index = "{jobs} t force index (claims)"
	var few []int64
	var many []string
	due := false
	inUse, asked := uint32(math.MaxUint32), uint32(0) // all, if it knows nothing yet
	last, known := s.priorities.Load(row.ID)
	if known {
		inUse = last.(uint32)
	}
	for more := true; more; {
		ranges := rangesOf(row, r, inUse&^asked)
		asked = inUse
		begins := map[int][]int64{}
		switch {
		case len(ranges) == 0:
		case row.LIFO():
			texts := make([]string, len(ranges))
			for i, within := range ranges {
				texts[i] = strings.NewReplacer("{range}", strconv.Itoa(i), "{within}", within).Replace(statements["range_begins"])
			}
			b.Rows(func(scan tables.Scan) error {
				var i int
				var seq int64
				err := scan(&i, &seq)
				begins[i] = append(begins[i], seq)
				return err
			}, strings.Join(texts, " union all "), args)
		default:
			ask(index, ranges, nil)
		}
		var probes []string
		if !due {
			probes = append(probes, statements["first_due"])
		}
		places, within := unused(row, inUse), rangesOf(row, r, ^inUse)
		switch {
		case innodb && len(places) > 0:
			probes = append(probes, statements["first_of"])
		case !innodb && len(within) > 0:
			probes = append(probes, statements["first_within"])
		}
		if len(probes) > 0 {
			b.Rows(func(scan tables.Scan) error {
				var priority int
				err := scan(&priority)
				if due = due || priority > penstock.MaxPriority; priority <= penstock.MaxPriority {
					inUse |= bitOf(priority)
				}
				return err
			}, strings.Join(probes, " union all "), args.With(tables.Args{"places": places, "within": tables.SQL(strings.Join(within, " or "))}))
		}
		if err := t.Run(ctx, b); err != nil {
			return err
		}
		*b = tables.Batch{}
		for i, seqs := range begins {
			if len(seqs) < r.Window {
				few = append(few, seqs...)
			} else {
				many = append(many, ranges[i])
			}
		}
		more = inUse != asked
	}
	if len(few) > 0 {
		ask("{these_seqs} straight_join {jobs} t force index (primary) on t.seq = d.seq", []string{"true"}, few)
	}
	if len(many) > 0 {
		ask(index, many, nil)
	}
	if due {
		b.Rows(func(scan tables.Scan) error {
			var n candidate
			err := scan(&n.Job.Priority, &n.TS, &n.Job.ID, &n.Waits, &n.Job.Key, &n.attempts)
			found.tried = append(found.tried, n)
			return err
		}, "page_tried", args)
	}
	if err := t.Run(ctx, b); err != nil {
		return err
	}
	if !keyed && slices.ContainsFunc(found.all(), candidate.keyed) {
		s.keyed.Store(row.ID, true)
		*b, *found = tables.Batch{}, pages{}
		return s.page(ctx, t, b, row, c, r, innodb, found)
	}
	if !known {
		inUse = 0
	}
	for _, n := range found.fresh {
		inUse |= bitOf(int(n.Job.Priority))
	}
	s.priorities.Store(row.ID, inUse)
	return nil
}

// bitOf is the bit of a priority among those in use.
func bitOf(priority int) uint32 { return 1 << (priority - penstock.MinPriority) }

// place is the priority, or in LIFO its negative.
func place(row *queueRow, priority int) int {
	if row.LIFO() {
		return -priority
	}
	return priority
}

// rangesOf are the conditions of a round's ranges of some priorities.
func rangesOf(row *queueRow, r *tables.Round, of uint32) (ranges []string) {
	for _, in := range r.Ranges {
		if of&bitOf(int(in.Priority)) != 0 {
			ranges = append(ranges, fmt.Sprintf("t.place = %d and t.ts > %s and t.ts <= %s", place(row, int(in.Priority)), at(in.After), at(in.UpTo)))
		}
	}
	return ranges
}

// unused are the places of the priorities that are not in use.
func unused(row *queueRow, inUse uint32) (places []int64) {
	for p := penstock.MinPriority; p <= penstock.MaxPriority; p++ {
		if inUse&bitOf(p) == 0 {
			places = append(places, int64(place(row, p)))
		}
	}
	return places
}

// order sorts as the queue does.
func order(row *queueRow, page []candidate) {
	slices.SortStableFunc(page, func(a, b candidate) int {
		later := cmp.Or(a.TS.Compare(b.TS), cmp.Compare(a.Job.ID, b.Job.ID))
		if row.LIFO() {
			later = -later
		}
		return cmp.Or(cmp.Compare(a.Job.Priority, b.Job.Priority), later)
	})
}

// choose gives leases to the jobs of the pages that may be taken. Jobs that wait may fill the page of those never claimed, or of those to be tried again. Jobs
// behind these are not taken, unless it is the last time: there may be jobs that come first. A job that a producer replaced between the two reads, and
// put off, is on both pages: it is taken from the second. Each read has its own snapshot, so two may show different jobs as the first of a key: one is taken.
func choose(row *queueRow, r *tables.Round, found pages, room int) []candidate {
	again := map[int64]bool{}
	for _, n := range found.tried {
		again[n.Job.ID] = n.keyed() // only such jobs are replaced
	}
	fresh := found.fresh
	for i := range fresh {
		fresh[i].Waits = fresh[i].Waits || again[fresh[i].Job.ID]
	}
	found.heads = slices.DeleteFunc(found.heads, func(n candidate) bool { return again[n.Job.ID] })
	page := found.all()
	order(row, page)
	short := func(of []candidate) bool {
		free := 0
		for _, n := range of {
			if !n.Waits {
				free++
			}
		}
		return !r.Last && len(of) >= r.Window && free < r.Jobs
	}
	if short(found.tried) {
		room = 0
	}
	reach := int64(0)
	if short(fresh) {
		reach = fresh[len(fresh)-1].Job.ID
	}
	keys := map[string]bool{}
	for i := range page {
		if room == 0 {
			break
		}
		if n := &page[i]; !n.Waits && !keys[n.Job.Key] {
			n.Job.Lease = rand.Int64N(1<<53-1) + 1 // any reader of JSON takes it
			room--
			keys[n.Job.Key] = n.keyed()
		}
		if page[i].Job.ID == reach {
			break
		}
	}
	return page
}
