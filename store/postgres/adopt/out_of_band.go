package adopt

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/penstock/penstock/driver"
)

// outOfBand is a Source's knowledge of the rows that are out of band.
type outOfBand struct {
	any   bool // guarded by Source.mu: there may be some
	asked uint64

	// Of Fetch only:
	checked time.Time // when any was found true
	turned  time.Time // when they had their turn
	floor   time.Time // of the server: all that was due before has been fetched
}

const (
	outOfBandEvery = 50 * time.Millisecond // their turn while the table is busy
	outOfBandCheck = time.Second           // are there any still?
	dueMargin      = time.Minute           // a settling transaction does not take longer
	outOfBandPage  = 500
	deadLettersMax = 16
)

func (s *Source) anyOutOfBand() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outOfBand.any
}

func (s *Source) outOfBandTurn() bool {
	return s.anyOutOfBand() && time.Since(s.outOfBand.turned) >= outOfBandEvery
}

// outOfBandRow is one row of _adopt_row.
type outOfBandRow struct {
	seq int64
	inFlightRow
}

func scanOutOfBand(rows pgx.Rows, err error) ([]outOfBandRow, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r outOfBandRow, err error) {
		var failures []byte
		if err := row.Scan(&r.id, &r.seq, &r.parkedKey, &r.Attempt, &failures, (*zeronull.Timestamptz)(&r.Since), &r.outOfOrder); err != nil {
			return r, err
		}
		r.Since = r.Since.UTC()
		r.outOfBand = true
		r.Parse(failures)
		return r, nil
	})
}

// fetchOutOfBand returns parked rows whose time has come, and dead letters that someone
// sends again; of workers, those that no other one has.
func (s *Source) fetchOutOfBand(ctx context.Context, q querier, limit driver.Limit) (*pending, error) {
	s.outOfBand.turned = time.Now()
	p, lock := &pending{before: s.head()}, ""
	if claims(q) {
		lock = " for update skip locked"
	}
	due, err := s.dueRows(ctx, q, limit, lock)
	if err != nil {
		return nil, err
	}
	found, err := scanOutOfBand(q.Query(ctx, s.t.own("retries")+lock, s.lease.id, deadLettersMax+s.outOfBandInFlight()))
	if err != nil {
		return nil, err
	}
	var chosen []outOfBandRow
	for _, r := range append(due, found...) {
		if !s.isInFlight(r.id) && len(chosen) < limit.Messages {
			chosen = append(chosen, r)
		}
	}
	if len(chosen) == 0 {
		return p, s.stillAny(ctx, q)
	}
	return p, s.loadOutOfBand(ctx, q, p, chosen, limit)
}

// outOfBandInFlight is how many rows that are out of band may be in flight, at most.
func (s *Source) outOfBandInFlight() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pending {
		if len(p.rows) > 0 && p.rows[0].outOfBand {
			n += len(p.rows)
		}
	}
	return n + len(s.landed)
}

// dueRows are the heads of parked keys that are due; where a head has not been refused, with the rows that
// follow it.
func (s *Source) dueRows(ctx context.Context, q querier, limit driver.Limit, lock string) ([]outOfBandRow, error) {
	heads, err := scanOutOfBand(q.Query(ctx, s.t.own("due")+lock, s.lease.id, s.outOfBand.floor, min(outOfBandPage, limit.Messages)+s.outOfBandInFlight()))
	if err != nil || len(heads) == 0 {
		return heads, err
	}
	var parkedKeys []string
	var seqs []int64
	for i := range heads {
		if r := &heads[i]; r.Attempt == 0 && !r.outOfOrder && r.parkedKey[0] == 'k' && !s.isInFlight(r.id) {
			parkedKeys, seqs = append(parkedKeys, r.parkedKey), append(seqs, r.seq)
		}
	}
	if len(parkedKeys) == 0 || claims(q) {
		return heads, nil
	}
	followers, err := scanOutOfBand(q.Query(ctx, s.t.own("followers"), s.lease.id, parkedKeys, seqs, max(1, limit.Messages/len(parkedKeys))))
	if err != nil {
		return nil, err
	}
	byKey := map[string][]outOfBandRow{}
	for _, r := range followers {
		byKey[r.parkedKey] = append(byKey[r.parkedKey], r)
	}
	all := make([]outOfBandRow, 0, len(heads)+len(followers))
	for _, h := range heads {
		if all = append(all, h); !h.outOfOrder {
			all = append(all, byKey[h.parkedKey]...)
			delete(byKey, h.parkedKey)
		}
	}
	return all, nil
}

// loadOutOfBand fills a batch with the rows' content. Parked keys of rows that are gone continue.
func (s *Source) loadOutOfBand(ctx context.Context, q querier, p *pending, chosen []outOfBandRow, limit driver.Limit) error {
	byID, err := s.load(ctx, q, idsOf(chosen))
	if err != nil {
		return err
	}
	bytes := 0
	var gone []outOfBandRow
	var w work
	for _, a := range chosen {
		r, there := byID[a.id]
		if !there {
			gone = append(gone, a)
			continue
		}
		r.message.Seq, r.message.Attempt, r.message.FailedSince = a.seq, a.Attempt+1, a.Since
		if why := r.unfit(); why != nil {
			s.kill(&w, &r, a.inFlightRow, why)
			continue
		}
		if bytes += r.message.Size(); bytes > limit.Bytes && len(p.messages) > 0 {
			break
		}
		p.add(&r, a.inFlightRow)
		if a.outOfOrder {
			p.setKeyOrder(driver.OutOfOrder)
		}
	}
	if len(gone) > 0 && claims(q) { // or another worker has them
		if gone, err = s.reallyGone(ctx, gone); err != nil {
			return err
		}
	}
	if len(gone)+len(w.parked.ids) == 0 {
		return nil
	}
	s.forget(&w, gone)
	if claims(q) { // it has locked rows out of band: it ends with this alone
		*p = pending{before: p.before, commit: true}
		_, err = s.send(ctx, q, &w)
		return err
	}
	return s.amend(ctx, &w)
}

// reallyGone leaves out the rows that are only locked.
func (s *Source) reallyGone(ctx context.Context, rows []outOfBandRow) ([]outOfBandRow, error) {
	byID, err := s.load(ctx, s.t.pool, idsOf(rows))
	return slices.DeleteFunc(rows, func(r outOfBandRow) bool { _, there := byID[r.id]; return there }), err
}

// forget has the work drop rows that were out of band and are not in the table any more, or not to be
// delivered any more.
func (s *Source) forget(w *work, gone []outOfBandRow) {
	if len(gone) == 0 {
		return
	}
	for _, r := range gone {
		w.back, w.release = append(w.back, r.id), append(w.release, r.parkedKey)
	}
	s.t.log.Warn("rows that were parked or dead letters are gone from the table, or were settled elsewhere; messages behind them continue", "rows", len(gone), "first", gone[0].id)
}

// amend makes work durable that is not about a batch.
func (s *Source) amend(ctx context.Context, w *work) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.commit(ctx, w, nil)
}

// refuse makes durable that rows are dead letters.
func (s *Source) refuse(ctx context.Context, unfit *work) error {
	if len(unfit.parked.ids) == 0 {
		return nil
	}
	if s.lease.workers { // the claim has the rows locked
		unfit.failed = failedRows{}
	}
	return s.amend(ctx, unfit)
}

// stillAny finds out, now and then, that nothing is out of band any more.
func (s *Source) stillAny(ctx context.Context, q querier) error {
	if time.Since(s.outOfBand.checked) < outOfBandCheck {
		return nil
	}
	s.mu.Lock()
	asked := s.outOfBand.asked
	s.mu.Unlock()
	var some bool
	var now time.Time
	err := q.QueryRow(ctx, "select exists (select from "+s.t.ownName("_adopt_row")+" where subscription = $1), statement_timestamp()", s.lease.id).Scan(&some, &now)
	if err != nil {
		return err
	}
	s.outOfBand.checked = time.Now()
	// Everything that was due has been fetched: this is called when nothing was found.
	if !s.lease.workers { // a claim that is rolled back may bring back old ones
		s.outOfBand.floor = now.Add(-dueMargin)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.outOfBand.asked == asked {
		s.outOfBand.any = some || s.lease.workers
	}
	return nil
}
