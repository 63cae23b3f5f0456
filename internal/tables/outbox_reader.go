package tables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/retry"
	"github.com/penstock/penstock/internal/seqset"
)

// Reading has the methods that a Reader needs of its store, in the dialect's SQL.
type Reading interface {
	// ReadPage fills p from where it says, and sets the other sources that have something.
	ReadPage(ctx context.Context, p *Page) error
	// Write settles parts in one transaction, with the row of the Reader's Attempt. If that is there, it has happened.
	Write(ctx context.Context, parts []*Part) error
	// Leave gives the lease back.
	Leave(ctx context.Context) error
}

// Reader is one reader of a subscription. Only the reader knows how far it has read, and the messages that it must not return again
// yet. The next reader begins with messages that have no entry.
type Reader struct {
	on      Reading
	DB      OutboxDB
	explain func(error) error
	retries *retry.Counter

	Req   driver.Subscribe
	Box   Outbox
	ID    int64 // of the subscription, 0 when ephemeral
	Epoch int64

	Fetching sync.Mutex // one Fetch at a time
	Low      time.Time  // nothing new is expected before
	Has      [Origins]bool
	now      time.Time     // of the database, zero if it was not asked
	due      Passed        // parked messages, and those to replay
	last     int           // how many messages the last batch had, a guess for the next
	bySeq    bool          // it has a position
	upTo     int64         // of one with a position: new messages are read behind it,
	ahead    seqset.Set    // but for these, which a reader before has settled
	open     seqset.Set    // new ones in flight
	swept    time.Time     // when it was last looked before Low
	sweeping time.Duration // how long that took
	doubts   atomic.Bool   // a call failed: it is looked everywhere
	turn     Origin        // of the last batch
	// perBucket is how many of each to read, if more than a few: when all waiting messages are in few buckets.
	perBucket int

	settling sync.Mutex // one Settle at a time
	Attempt  int64      // number of its row in progress, which says that it has happened
	rows     int64      // numbers that were given out
	call     uint64     // the attempt of the last Settle
	callRow  int64      // its number

	mu         sync.Mutex
	inFlight   map[int64]*Flight // by seq, but for new ones of a reader with a position; of an ephemeral reader all that it has returned since Low
	parkedKeys map[string]int    // in flight
	settled    int64             // number of the last Settle that is known to have happened
	number     uint64            // of the last batch
	ended      error             // why there is nothing more to come
	closed     bool
}

// Flight is a message that was returned and is not settled.
type Flight struct {
	Bucket  int16
	TS      time.Time
	From    Origin
	InOrder bool   // of a parked key
	RowID   string // in an adopted table, or by which it is distributed
	Unfit   error  // why the row is not a message
}

// NewReader has nothing in flight. explain adds the next step to an error of the dialect's.
func NewReader(on Reading, db OutboxDB, explain func(error) error, retries *retry.Counter, req driver.Subscribe) *Reader {
	return &Reader{on: on, DB: db, explain: explain, retries: retries, Req: req, swept: time.Now(), inFlight: map[int64]*Flight{}, parkedKeys: map[string]int{}}
}

// Passes has an ephemeral reader not return a message.
func (r *Reader) Passes(seq int64, f Flight) { r.inFlight[seq] = &f }

// Due is since when something parked may be due, or something be replayed.
func (r *Reader) Due(sweep time.Duration) *Since { return r.due.Since(sweep) }

// IsDue notes whether there is any, at a time of the database's.
func (r *Reader) IsDue(since *Since, now time.Time, margin time.Duration) {
	r.now = now
	since.Found(r.Has[FromPark] || r.Has[FromReplay], now.Add(-margin))
}

// Anew has it look everywhere: it reads others' buckets.
func (r *Reader) Anew() {
	r.Low = time.Time{}
	r.due.Forget()
}

// Usable is an error once this reader cannot be used any more.
func (r *Reader) Usable(ctx context.Context) error {
	if err := r.DB.Ready(ctx); err != nil {
		return err
	}
	return r.whyEnded()
}

func (r *Reader) whyEnded() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// End remembers why this reader cannot be used any more; the first reason stays.
func (r *Reader) End(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil {
		r.ended = err
	}
	return r.ended
}

// Gone ends the reader because its row is another's, or not there, as its outbox may not be.
func (r *Reader) Gone(outbox bool) error {
	if !outbox {
		return r.End(NoOutbox(r.Box.Name))
	}
	if r.Box.Adopted != nil {
		return r.End(fmt.Errorf("subscription %q of table %s: %w", r.Req.Subscription, r.Box.Name, penstock.ErrFenced))
	}
	return r.End(fmt.Errorf("subscription %q of outbox %q: %w", r.Req.Subscription, r.Box.Name, penstock.ErrFenced))
}

// orGone: the outbox's table is not there, though the outbox's row may be.
func (r *Reader) orGone(err error) error {
	if r.DB.Missing(err) {
		if r.Box.Adopted != nil {
			return r.End(penstock.WithHint(err, "the adopted table was dropped or renamed: correct the configuration and start again"))
		}
		return r.Gone(false)
	}
	return err
}

// Close implements driver.Source. A second Close returns nil.
func (r *Reader) Close(ctx context.Context) error {
	r.mu.Lock()
	closed := r.closed
	r.closed = true
	r.mu.Unlock()
	if closed {
		return nil
	}
	err := r.on.Leave(ctx)
	_ = r.End(penstock.ErrClosed)
	if errors.Is(err, penstock.ErrFenced) || errors.Is(err, penstock.ErrNoOutbox) {
		return nil // the lease is another reader's: nothing to give back
	}
	return err
}

// SettledTo is up to when nothing new is expected and nothing is in flight.
func (r *Reader) SettledTo() time.Time {
	r.Fetching.Lock()
	low := r.Low
	r.Fetching.Unlock()
	for _, f := range r.InFlight() {
		if f.From == FromLog && !f.TS.After(low) {
			low = f.TS.Add(-time.Microsecond)
		}
	}
	return low
}

// InFlight has the messages that were returned and are not settled, by number.
func (r *Reader) InFlight() map[int64]Flight {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[int64]Flight, len(r.inFlight))
	for seq, f := range r.inFlight {
		all[seq] = *f
	}
	return all
}

// SeqsInFlight are the numbers of parked and replayed messages that were returned and are not settled.
func (r *Reader) SeqsInFlight() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	seqs := []int64{}
	for seq, f := range r.inFlight {
		if f.From != FromLog {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// RowsInFlight are the ids of those of an adopted table.
func (r *Reader) RowsInFlight() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]string, 0, len(r.inFlight))
	for _, f := range r.inFlight {
		ids = append(ids, f.RowID)
	}
	return ids
}

// KeysInFlight are the keys of which something parked is in flight.
func (r *Reader) KeysInFlight() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.AppendSeq([]string{}, maps.Keys(r.parkedKeys))
}
