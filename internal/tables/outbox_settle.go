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
)

// Part is a message of a batch with its verdict.
type Part struct {
	Msg *penstock.Message
	*Flight
	driver.Verdict
}

// Settle implements driver.Source. Each call leaves a row with its number, in the transaction that settles: made again, it finds that
// and does nothing more.
func (r *Reader) Settle(ctx context.Context, attempt uint64, news ...driver.Settled) error {
	if err := r.Usable(ctx); err != nil || r.ID == 0 {
		return err
	}
	parts, err := r.parts(news)
	if err != nil || len(parts) == 0 {
		return err
	}
	r.settling.Lock()
	defer r.settling.Unlock()
	if attempt == r.call {
		r.retries.Looked()
	} else {
		r.call, r.callRow = attempt, r.newRow()
	}
	return r.write(ctx, r.callRow, parts)
}

// newRow is the number of another row in progress.
func (r *Reader) newRow() int64 {
	r.rows++
	return r.rows
}

// write settles parts, with a row in progress. They are not in flight after that.
func (r *Reader) write(ctx context.Context, row int64, parts []*Part) error {
	r.Attempt = row
	if err := r.retries.Do(ctx, func() error { return r.orGone(r.on.Write(ctx, parts)) }); err != nil {
		r.doubts.Store(true)
		return r.explain(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled = row
	r.open = r.open.Without(fresh(parts))
	for _, p := range parts {
		if r.inFlight[p.Msg.Seq] != p.Flight {
			continue // refused in Fetch
		}
		delete(r.inFlight, p.Msg.Seq)
		if p.InOrder {
			if r.parkedKeys[p.Msg.Key]--; r.parkedKeys[p.Msg.Key] == 0 {
				delete(r.parkedKeys, p.Msg.Key)
			}
		}
	}
	return nil
}

// parts are the messages that have a verdict. Of one that a server lost which was replaced, another message may have the number.
func (r *Reader) parts(news []driver.Settled) (parts []*Part, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, st := range news {
		flights, _ := st.Batch.Source.([]*Flight)
		if n := len(st.Batch.Messages); len(flights) != n || st.Verdicts != nil && len(st.Verdicts) != n {
			return nil, fmt.Errorf("batch %d of subscription %q has %d messages and %d verdicts: settle the batches that Fetch returned, with one verdict for each message, or nil", st.Batch.Number, r.Req.Subscription, n, len(st.Verdicts))
		}
		slab := make([]Part, len(flights)) // one allocation
		parts = slices.Grow(parts, len(flights))
		for i, f := range flights {
			p := &slab[i]
			p.Msg, p.Flight = &st.Batch.Messages[i], f
			if st.Verdicts != nil {
				p.Verdict = st.Verdicts[i]
			}
			if p.Outcome != driver.Undecided && (r.inFlight[p.Msg.Seq] == f || r.bySeq && f.From == FromLog && r.open.Has(p.Msg.Seq)) {
				parts = append(parts, p)
			}
		}
	}
	return parts, nil
}

// Settling has the methods with which a dialect without Options.Position settles.
type Settling interface {
	// Once runs a batch as one transaction, in one round trip, and Try runs fn in a transaction. Neither is tried again.
	Once(ctx context.Context, b *Batch) error
	Try(ctx context.Context, fn func(tx Tx) error) error
	// About are the arguments of a statement about rows: "allowed" is the condition that they may be settled.
	About(rows Args) Args
	// Fence is the statement that locks the lease.
	Fence() string
	// Note writes entries, and has the heads of keys found anew.
	Note(b *Batch, w *Writes)
}

// SettleBy writes parts with the statements of a dialect. Messages that are new and were delivered take one round trip.
func (r *Reader) SettleBy(ctx context.Context, on Settling, parts []*Part) error {
	if !Plain(parts) {
		return on.Try(ctx, func(tx Tx) error { return r.settleIn(ctx, on, tx, parts) })
	}
	mine, about := false, on.About(RowsOf(parts))
	if r.Box.DistributedBy != "" {
		return on.Try(ctx, func(tx Tx) error { return r.settleFar(ctx, on, tx, about) })
	}
	b := new(Batch).Row(new(bool), on.Fence(), about, &mine).Do("progress_of", about)
	r.end(b, about)
	err := on.Once(ctx, b)
	if err == nil && !mine {
		return r.Fenced(ctx, r.DB)
	}
	return err
}

// settleFar looks first whether it may delete, where a condition of the statement itself would be a round trip to servers that are further away.
func (r *Reader) settleFar(ctx context.Context, on Settling, tx Tx, about Args) error {
	mine, first := false, int64(0)
	err := tx.Run(ctx, new(Batch).Row(new(bool), on.Fence(), about, &mine).Counted(&first, "progress_of", about))
	switch {
	case err != nil:
		return err
	case !mine:
		return r.Fenced(ctx, tx)
	case first == 0: // it has happened
		return nil
	}
	b := new(Batch)
	r.end(b, about)
	return tx.Finish(ctx, b)
}

// settleIn reads the entries of messages with verdicts, and writes the rest. The lock waits for the same call, if that is under way still.
func (r *Reader) settleIn(ctx context.Context, on Settling, tx Tx, parts []*Part) error {
	var mine, happened bool
	var now time.Time
	before, there := map[int64]*Entry{}, map[int64]bool{}
	about := on.About(RowsOf(parts))
	b := new(Batch).Row(new(bool), on.Fence(), about, &mine)
	b.Row(new(bool), "select exists (select 1 from {schema}.progress where subscription_id = {sub} and epoch = {epoch} and attempt = {attempt})", about, &happened)
	b.Row(new(bool), "select {clock}", nil, &now)
	b.Rows(EntriesBefore(before), "read_entries", about).Rows(Each(func(seq int64) { there[seq] = true }), "existing", about)
	err := tx.Run(ctx, b)
	if err == nil && !mine {
		return r.Fenced(ctx, tx)
	}
	if err != nil || happened {
		return err
	}
	w, err := Judge(now, parts, before, there)
	if err != nil {
		return err
	}
	b = &Batch{}
	if len(w.Gone) > 0 {
		b.Do("end_entries", r.Args(Args{"seqs": w.Gone}))
	}
	on.Note(b, w)
	for some := range slices.Chunk(w.Released, 100) {
		b.Do("release", r.Args(Args{"keys": some}))
	}
	b.Do("progress", about.With(Args{"settled": w.Settled}))
	if len(w.Delivered) > 0 {
		r.end(b, on.About(RowsOf(w.Delivered)))
	}
	if failed := w.Failed(&r.Box); failed != nil {
		b.Do("adopt_failed", on.About(failed))
	}
	return tx.Finish(ctx, b)
}

// end notes or deletes delivered messages. How many were settled is in progress by then.
func (r *Reader) end(b *Batch, about Args) {
	if r.Box.Adopted != nil {
		b.Do(r.Box.Adopted.Settles, about)
		return
	}
	if r.Box.DistributedBy == "" {
		b.Do("keep_settled", about)
	}
	b.Do("delete", about)
}

// RowsOf are where messages are.
func RowsOf(parts []*Part) Args {
	n := len(parts)
	m := messages{make([]int16, 0, n), make([]time.Time, 0, n), make([]int64, 0, n), make([]string, 0, n)}
	for _, p := range parts {
		f := *p.Flight
		f.TS = f.TS.UTC()
		m.add(f, p.Msg.Seq)
	}
	return m.args()
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
	RowID     string          `json:"row_id"` // of an adopted or distributed table
	Err       string          `json:"-"`      // of the last attempt
}

const (
	parked = 1
	dead   = 2
)

// before reads the entry of a message: its number, state, parked key, hold, attempts, since when and with what failures.
func (e *Entry) before(scan Scan) error {
	var failures []byte
	err := scan(&e.Seq, &e.State, &e.ParkedKey, &e.Hold, &e.Attempts, &e.Since, &failures)
	e.Failures = slices.Clone(failures)
	return err
}

// EntriesBefore reads the entries of messages.
func EntriesBefore(into map[int64]*Entry) func(Scan) error {
	return func(scan Scan) error {
		e := &Entry{}
		err := e.before(scan)
		into[e.Seq] = e
		return err
	}
}

// Writes are the changes that a Settle makes to the entries.
type Writes struct {
	Now       time.Time // of the database
	Gone      []int64   // entries to take away, also where another takes their place
	Entries   []*Entry
	Delivered []*Part
	Keys      map[string][]int64 // whose first may be another, with those of their messages that were parked now
	Released  []string           // keys whose dead letter was delivered
	Settled   int
}

// Judge decides the writes for parts, of which something may be known before. Messages may be missing on a server that was promoted without the
// last commits. They are skipped: parked, they would keep their keys waiting for ever.
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

// Failed are the rows of an adopted table that take a failure, in columns that are the user's; nil without any.
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
	if before != nil && p.From == FromLog {
		return nil // by a call that was not answered
	}
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
	attempts := h.Attempt + pg.Attempts(p.Failures)
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
			attempts++ // it had one, even if no failure was noted
		}
		if p.Hold && inOrder {
			e.Hold = &e.Key
			w.look(e.Key)
		}
	}
	e.Attempts = attempts
	if !h.Since.IsZero() {
		e.Since = &h.Since
	}
	if len(h.Failures) > 0 {
		e.Failures, e.Err = json.RawMessage(h.JSON()), h.LastError()
	}
	w.Entries = append(w.Entries, e)
	return nil
}
