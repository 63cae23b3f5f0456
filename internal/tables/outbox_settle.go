package tables

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/retry"
)

// Part is a message of a batch with its verdict.
type Part struct {
	Msg *penstock.Message
	*Flight
	driver.Verdict
	batch *openBatch
	no    uint64
}

// Settle implements driver.Source. Each attempt has a number and leaves a row with it, in the transaction that settles:
// after an error the row tells whether that has happened, and keeps it from happening later.
func (r *Reader) Settle(ctx context.Context, _ uint64, settled ...driver.Settled) error {
	if err := r.Usable(ctx); err != nil || r.ID == 0 {
		return err
	}
	r.settling.Lock()
	defer r.settling.Unlock()
	return r.on.Explain(r.on.Retries().Do(ctx, func() error {
		if err := r.resolve(ctx); err != nil {
			return err
		}
		parts, err := r.parts(settled)
		if err != nil || len(parts) == 0 {
			return err
		}
		r.unsure = parts
		err = r.orGone(r.on.Write(ctx, parts))
		if err != nil {
			r.doubts.Store(true)
		}
		switch {
		case err == nil:
			r.confirm()
		case retry.Of(err) != retry.None:
			r.unsure = nil // nothing was changed
		}
		return err
	}))
}

// resolve finds out what became of an attempt that ended with an error. The server may be about to do it still: so an
// attempt that has not happened is given up, by a row that keeps its statements from doing anything, and the next has
// another number.
func (r *Reader) resolve(ctx context.Context) error {
	if r.unsure == nil {
		return nil
	}
	r.on.Retries().Looked()
	happened, err := r.on.Happened(ctx)
	switch {
	case err != nil:
		return r.orGone(err)
	case happened:
		r.confirm()
	default:
		r.unsure = nil
		r.Attempt++
	}
	return nil
}

// GivenUp, in the place of how many were settled, says that the attempt will not happen.
const GivenUp = -1

// confirm notes that the last attempt has happened.
func (r *Reader) confirm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.unsure {
		delete(r.inFlight, p.Msg.Seq)
		if p.InOrder {
			if r.parkedKeys[p.Msg.Key]--; r.parkedKeys[p.Msg.Key] == 0 {
				delete(r.parkedKeys, p.Msg.Key)
			}
		}
		if p.batch.left--; p.batch.left == 0 {
			delete(r.open, p.no)
		}
	}
	r.unsure = nil
	r.Attempt++
}

// parts are the messages that have a verdict and had none before.
func (r *Reader) parts(settled []driver.Settled) (parts []*Part, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[int64]bool{}
	for _, st := range settled {
		no := st.Batch.Number
		b := r.open[no]
		switch {
		case no > r.number:
			return nil, fmt.Errorf("batch %d of subscription %q was not returned by Fetch", no, r.Req.Subscription)
		case b == nil:
			continue // it is settled: asked again, after an answer that did not arrive
		case st.Verdicts != nil && len(st.Verdicts) != len(b.msgs):
			return nil, fmt.Errorf("batch %d has %d messages and %d verdicts: give one for each, or nil", no, len(b.msgs), len(st.Verdicts))
		}
		for i := range b.msgs {
			p := &Part{batch: b, no: no, Msg: &b.msgs[i], Flight: r.inFlight[b.msgs[i].Seq]}
			if st.Verdicts != nil {
				p.Verdict = st.Verdicts[i]
			}
			if p.Flight == nil || p.Flight.batch != no || p.Outcome == driver.Undecided || seen[p.Msg.Seq] {
				continue
			}
			seen[p.Msg.Seq] = true
			parts = append(parts, p)
		}
	}
	return parts, nil
}

// Plain: all are new and were delivered.
func Plain(parts []*Part) bool {
	return !slices.ContainsFunc(parts, func(p *Part) bool { return p.From != FromLog || p.Outcome != driver.Delivered })
}

// Entry is a row of the entries.
type Entry struct {
	Seq       int64           `json:"seq"`
	Bucket    int16           `json:"bucket"`
	TS        time.Time       `json:"ts"`
	State     int             `json:"state"`
	Key       string          `json:"key"`
	ParkedKey *string         `json:"parked_key"`
	Hold      *string         `json:"hold"`
	Head      bool            `json:"head"`
	Due       *time.Time      `json:"due"`
	Attempts  int             `json:"attempts"`
	Since     *time.Time      `json:"since"`
	Failures  json.RawMessage `json:"failures"`
	DiedAt    *time.Time      `json:"died_at"`
	RowID     string          `json:"row_id"` // of an adopted table
	Err       string          `json:"-"`      // of the last attempt
}

const (
	parked = 1
	dead   = 2
)

// Before reads what is known of a message: its number, state, parked key, hold, attempts, since when and with what failures.
func (e *Entry) Before(scan Scan) error {
	var failures []byte
	err := scan(&e.Seq, &e.State, &e.ParkedKey, &e.Hold, &e.Attempts, &e.Since, &failures)
	e.Failures = slices.Clone(failures)
	return err
}

// Writes is what a Settle does to the entries.
type Writes struct {
	Now       time.Time // of the database
	Gone      []int64   // entries to take away, also where another takes their place
	Entries   []*Entry
	Delivered []*Part
	Keys      map[string][]int64 // whose first may be another, with what of them was parked now
	Released  []string           // keys whose dead letter was delivered
	Settled   int
}

// Judge says what is to be written for parts, of which something may be known before. What is not there any more, on a server that was promoted
// without the last that was committed, is passed over: parked, it would keep its key waiting for ever.
func Judge(now time.Time, parts []*Part, before map[int64]*Entry, there map[int64]bool) (*Writes, error) {
	w := &Writes{Now: now, Keys: map[string][]int64{}}
	for _, p := range parts {
		if !there[p.Msg.Seq] {
			continue
		}
		if err := w.judge(p, before[p.Msg.Seq]); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// Failed are the rows of an adopted table that are told of a failure, in columns that are the user's; nil without any.
func (w *Writes) Failed(box *Outbox) Args {
	if box.Adopted == nil || box.Words["failed"] == "" {
		return nil
	}
	at, errs, attempts := messages{}, []string{}, []int64{}
	for _, e := range w.Entries {
		if e.Err != "" {
			at.add(Flight{Bucket: e.Bucket, TS: e.TS, RowID: e.RowID}, e.Seq)
			errs, attempts = append(errs, e.Err), append(attempts, int64(e.Attempts))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return at.args().With(Args{"errors": errs, "attempts": attempts})
}

// look has the first of a parked key found anew, of which these were parked now.
func (w *Writes) look(key string, fresh ...int64) { w.Keys[key] = append(w.Keys[key], fresh...) }

// last is a time that can be written; of an adopted table's number it may be far away.
func last(t time.Time) time.Time {
	if end := time.UnixMicro(farFuture); t.After(end) {
		return end
	}
	return t
}

// judge carries out the verdict on a message.
func (w *Writes) judge(p *Part, before *Entry) error {
	h := pg.History{}
	e := &Entry{Seq: p.Msg.Seq, Bucket: p.Bucket, TS: last(p.TS).UTC(), Key: p.Msg.Key, RowID: p.RowID}
	if before != nil {
		w.Gone = append(w.Gone, e.Seq)
		e.Hold, h.Attempt = before.Hold, before.Attempts
		if before.Since != nil {
			h.Since = *before.Since
		}
		h.Parse(before.Failures)
		if before.ParkedKey != nil {
			w.look(*before.ParkedKey)
		}
	}
	inOrder := p.Msg.Key != "" && (p.From != FromPark || p.InOrder)
	attempts := h.Attempt + len(p.Failures)
	h = h.And(p.Failures)
	switch p.Outcome {
	case driver.Delivered:
		w.Settled++
		w.Delivered = append(w.Delivered, p)
		if e.Hold != nil {
			w.Released = append(w.Released, *e.Hold)
		}
		return nil
	case driver.Parked:
		e.State = parked
		due := w.Now.Add(max(p.RetryIn, 0))
		if e.Due = &due; inOrder {
			e.ParkedKey = &e.Key
			w.look(e.Key, e.Seq)
		} else {
			e.Head = true
		}
	case driver.Dead:
		w.Settled++
		e.State, e.DiedAt = dead, &w.Now
		if len(p.Failures) == 0 {
			attempts++ // it had one, even if nobody noted a failure
		}
		if p.Hold && inOrder {
			e.Hold = &e.Key
			w.look(e.Key)
		}
	}
	e.Attempts = attempts
	if attempts > 0 && !h.Since.IsZero() {
		e.Since, e.Failures, e.Err = &h.Since, json.RawMessage(h.JSON()), h.LastError()
	}
	w.Entries = append(w.Entries, e)
	return nil
}
