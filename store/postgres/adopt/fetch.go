package adopt

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/driver"
)

// inBinary asks for results as layouts expect them.
var inBinary = pgx.QueryResultFormats{pgx.BinaryFormatCode}

func (s *Source) fetchTable(ctx context.Context, limit driver.Limit) (p *pending, more bool, err error) {
	if s.reconsider(ctx); !s.scanning {
		return s.fetchNext(ctx, limit)
	}
	if err := s.scan(ctx); err != nil {
		return nil, false, err
	}
	p, _, err = s.batchOf(ctx, s.head(), s.late.take(s.fitting(limit)), limit)
	return p, s.late.waiting(), err
}

// fitting is how many messages of the usual size a batch has room for.
func (s *Source) fitting(limit driver.Limit) int {
	return min(limit.Messages, 1+limit.Bytes/max(1, s.average))
}

// fetchNext reads on from the head, and looks for rows that have become visible behind
// it.
//
// Rows at the head are read first. So whatever its writers could have seen is found behind the head
// by the statement that comes after, and goes before it.
func (s *Source) fetchNext(ctx context.Context, limit driver.Limit) (*pending, bool, error) {
	if s.owed != nil && s.late.waiting() { // a look continues once its rows are taken
		p, _, err := s.batchOf(ctx, s.head(), s.late.take(s.fitting(limit)), limit)
		return p, true, err
	}
	before, slack := s.places()
	defer func() { clear(s.page) }() // rows that the batch has not taken are not kept
	rows, snapshot, full, err := s.readOn(ctx, s.t.pool, before.place, limit)
	if err != nil {
		return nil, false, err
	}
	ids, more, err := s.becameVisible(ctx, snapshot, before, slack)
	if err != nil {
		return nil, false, err
	}
	n := s.fitting(limit)
	if len(ids) > n {
		s.late.add(inFront, ids[n:])
		ids, more = ids[:n], true
	}
	if !more {
		ids = append(ids, s.late.take(n-len(ids))...)
	}
	p, found, err := s.batchOf(ctx, before, ids, limit)
	if err != nil {
		return nil, false, err
	}
	if more || !found || s.late.waiting() { // the head is read again when it is its turn
		return p, true, nil
	}
	cut, err := s.fill(ctx, p, rows, limit)
	if err != nil {
		s.late.add(inFront, ids)
		return nil, false, err
	}
	s.full = full || cut < len(rows)
	s.moved(rows[:cut])
	return p, s.full || s.late.waiting(), nil
}

// places are the head, and where the slack behind it begins.
func (s *Source) places() (head, slack position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retreat != nil {
		s.track.retreat(s.retreat, time.Now())
		s.retreat = nil
	}
	return s.track.head(), s.track.slack(time.Now())
}

// becameVisible lists rows behind the head that the read before may not have seen; more
// if there are others.
func (s *Source) becameVisible(ctx context.Context, snapshot string, before, slack position) (ids []string, more bool, err error) {
	from := slack
	s.mu.Lock()
	if back, some := s.track.saw(snapshot); some && (s.owed == nil || back.n < s.owed.n) {
		s.owed = &back
	}
	low := s.track.low(time.Now())
	s.mu.Unlock()
	if s.owed != nil && s.owed.n < from.n {
		if from = *s.owed; from.n < low.n { // older than the margin: the sweep's, but at once
			from = low
			select {
			case s.sweep <- struct{}{}:
			default:
			}
		}
	}
	if from.n < before.n {
		if ids, more, err = s.behind(ctx, from.place, before.place); err != nil || more {
			return ids, more, err // the place is owed until all of it was looked at
		}
	}
	s.owed = nil
	return ids, false, nil
}

// batchOf begins a batch with the rows of these ids. all is false if there was no room
// for some, which wait for the next one.
func (s *Source) batchOf(ctx context.Context, before position, ids []string, limit driver.Limit) (p *pending, all bool, err error) {
	p = &pending{before: before}
	rows, err := s.loadInOrder(ctx, s.t.pool, ids)
	if err == nil {
		var cut int
		if cut, err = s.fill(ctx, p, rows, limit); err == nil {
			s.late.add(inFront, idsOf(rows[cut:]))
			return p, cut == len(rows), nil
		}
	}
	s.late.add(inFront, ids)
	return p, true, err
}

// readOn reads the next page, into s.page; full if it has all rows that were asked for. A claim has all rows that it locks.
func (s *Source) readOn(ctx context.Context, q querier, after place, limit driver.Limit) (page []row, snapshot string, full bool, err error) {
	n, next := s.fitting(limit), &s.st.read
	if claims(q) {
		next = &s.st.claim
	}
	sql, args := next.behind(after, n)
	page = s.page[:0]
	bytes, d, guarded := 0, s.m.decoder(s.m.whole), s.guarded(q)
	err = s.guard(ctx, q, sql, args, func(values [][]byte) {
		if values[0] != nil {
			snapshot = string(values[0])
			return
		}
		if full = full || bytes > limit.Bytes && !claims(q); full { // rows beyond the limit are not kept
			return
		}
		page = append(page, d.decode(values[1:]))
		bytes += page[len(page)-1].message.Size()
	})
	s.page = page
	if unreadable(err) && guarded {
		n = min(n, rereadRows)
		page, snapshot, err = s.reread(ctx, q, after, n)
		full = false
	}
	s.weigh(page)
	return page, snapshot, full || len(page) == n, err
}

// moved notes that the head is at the last row of a page.
func (s *Source) moved(page []row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lag = 0
	if len(page) > 0 {
		last := &page[len(page)-1]
		if s.full && !last.message.CreatedAt.IsZero() {
			s.lag = time.Since(last.message.CreatedAt)
		}
		s.track.moved(last.at, len(page), time.Now())
	}
	s.track.full, s.track.far = s.full, s.lag > maxSlack
}

// args are the place as parameters.
func (p place) args() []any {
	args := make([]any, len(p))
	for i := range p {
		args[i] = p[i]
	}
	return args
}

// list lists the rows that a narrow statement selects, without those that are in flight or found already. n is how many it selects, and
// last the place of the last one.
func (s *Source) list(ctx context.Context, q querier, sql string, args ...any) (ids []string, n int, last place, err error) {
	d := s.m.decoder(s.m.placing)
	if err = query(ctx, q, sql, args, func(values [][]byte) {
		n++
		d.load(values)
		if id := d.id(); !s.isInFlight(id) && !s.late.has(id) {
			ids = append(ids, id)
		}
	}); n > 0 {
		last = d.at()
	}
	return ids, n, last, err
}

// behindPage is how many rows are looked at in one statement behind the head.
const behindPage = 5000

// behind lists the rows between two places that are neither in flight nor out of band nor found
// already. more: there are others, more than are listed.
func (s *Source) behind(ctx context.Context, from, to place) (ids []string, more bool, err error) {
	for {
		sql, args := s.st.narrow.behind(from, behindPage)
		page, n, last, err := s.list(ctx, s.t.pool, sql, append(args, to.args()...)...)
		if err == nil {
			page, err = s.notOutOfBand(ctx, page)
		}
		if err != nil {
			return nil, false, err
		}
		ids, from = append(ids, page...), last
		switch {
		case n < behindPage:
			return ids, false, nil
		case len(ids) >= behindPage:
			return ids, true, nil
		}
	}
}

// loadInOrder reads rows that are known by their ids, in that order. Rows that are gone are left out.
func (s *Source) loadInOrder(ctx context.Context, q querier, ids []string) ([]row, error) {
	byID, err := s.load(ctx, q, ids)
	if err != nil {
		return nil, err
	}
	found := make([]row, 0, len(byID))
	for _, id := range ids {
		if r, there := byID[id]; there {
			found = append(found, r)
			delete(byID, id) // an id may come twice
		}
	}
	s.weigh(found)
	return found, nil
}

// load reads rows that are known by their ids; workers claim them. Rows that are gone are left out.
func (s *Source) load(ctx context.Context, q querier, ids []string) (map[string]row, error) {
	byID := make(map[string]row, len(ids))
	return byID, s.loadInto(ctx, q, byID, ids)
}

// idsOf are the ids of rows.
func idsOf[R interface{ rowID() string }](rows []R) []string {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].rowID()
	}
	return ids
}

// weigh learns how large messages are, from a page of them.
func (s *Source) weigh(page []row) {
	bytes := 0
	for i := range page {
		bytes += page[i].message.Size()
	}
	if len(page) > 0 {
		s.average = bytes / len(page)
	}
}

// notOutOfBand leaves out the rows that are out of band: their time is another.
func (s *Source) notOutOfBand(ctx context.Context, ids []string) ([]string, error) {
	if len(ids) == 0 || !s.anyOutOfBand() {
		return ids, nil
	}
	outOfBand, _, err := s.known(ctx, s.t.pool, ids, nil)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(ids, func(id string) bool { return outOfBand[id] }), nil
}

// known asks which rows are out of band and which parked keys have to wait.
func (s *Source) known(ctx context.Context, q querier, ids, parkedKeys []string) (outOfBand, waiting map[string]bool, err error) {
	rows, _ := q.Query(ctx, s.t.own("known"), s.lease.id, ids, parkedKeys)
	outOfBand, waiting = map[string]bool{}, map[string]bool{}
	var id, parkedKey *string
	_, err = pgx.ForEachRow(rows, []any{&id, &parkedKey}, func() error {
		if id != nil {
			outOfBand[*id] = true
		} else if parkedKey != nil {
			waiting[*parkedKey] = true
		}
		return nil
	})
	return outOfBand, waiting, err
}

// fill adds messages to a batch, of rows that are neither in it nor in flight nor out of band. cut is
// how many rows there was room for.
func (s *Source) fill(ctx context.Context, p *pending, rows []row, limit driver.Limit) (cut int, err error) {
	var outOfBand, waiting map[string]bool
	if len(rows) > 0 && s.anyOutOfBand() {
		var parkedKeys []string
		for i := range rows {
			if key := rows[i].message.Key; key != "" {
				parkedKeys = append(parkedKeys, parkedKeyOf(key, ""))
			}
		}
		if outOfBand, waiting, err = s.known(ctx, s.t.pool, idsOf(rows), parkedKeys); err != nil {
			return 0, err
		}
	}
	bytes := 0
	in := make(map[string]bool, len(p.rows)) // once the head has gone back, it reads the rows that were found behind it
	for i := range p.messages {
		bytes += p.messages[i].Size()
		in[p.rows[i].id] = true
	}
	var unfit work
	room := min(len(rows), limit.Messages)
	p.rows, p.messages = slices.Grow(p.rows, room), slices.Grow(p.messages, room)
	for cut = range rows {
		r := &rows[cut]
		if bytes += r.message.Size(); len(p.messages) > 0 && (bytes > limit.Bytes || len(p.messages) >= limit.Messages) {
			return cut, s.refuse(ctx, &unfit)
		}
		if r.passed = r.passed || in[r.id] || outOfBand[r.id] || s.isInFlight(r.id); r.passed {
			bytes -= r.message.Size()
			continue
		}
		if r.message.Seq, err = s.nextSeq(ctx); err != nil {
			return 0, err
		}
		if why := r.unfit(); why != nil {
			s.kill(&unfit, r, inFlightRow{outOfOrder: true}, why)
			r.passed = true
			continue
		}
		p.add(r, inFlightRow{})
		if r.message.Key != "" && len(waiting) > 0 && waiting[parkedKeyOf(r.message.Key, "")] {
			p.setKeyOrder(driver.BehindParked)
		}
	}
	return len(rows), s.refuse(ctx, &unfit)
}
