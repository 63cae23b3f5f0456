package adopt

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/pg"
)

// Source is the table's subscription under a lease: one ordered reader, which holds no lock on any
// row. Rows in flight are in memory; everything else is in the tables. It can lose its connections
// at any time and continues with others.
type Source struct {
	t  *Table
	m  *mapping
	st statements

	lease   *lease     // does not change
	writing sync.Mutex // one settling transaction at a time

	stop context.CancelFunc // of looking back
	over sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	settled   int64 // rows, since the subscription was created
	batches   uint64
	pending   map[uint64]*pending
	inFlight  map[string]bool // rows that were fetched and have no verdict
	landed    []string        // of them, those that are settled: they fly until the next Fetch begins
	track     *track
	lag       time.Duration // see lags
	sink      sink
	outOfBand outOfBand
	scanning  bool  // there is no order in which to read; written by Fetch alone
	retreat   place // to which the head has to go back before the next read, nil: none

	late  late
	sweep chan struct{} // notified: now

	// Of Fetch only:
	seq     int64 // of the last message
	full    bool  // the last read was a full page
	owed    *position
	average int   // bytes of a message
	page    []row // memory for the next

	ordered    bool      // an index has the order
	revised    time.Time // when that was found out
	nextScan   time.Time
	guardUntil time.Time // see guard
}

var _ driver.Source = (*Source)(nil)

// pending is a batch that was returned and is not settled.
type pending struct {
	number   uint64
	before   position // where the head was
	rows     []inFlightRow
	messages []penstock.Message
	keyOrder []driver.KeyOrder // nil: all are in order

	// Of a worker:
	claim  *claim
	commit bool     // it has no message, and something to commit
	left   []string // rows that are locked with it and not in it
	noted  bool     // there are verdicts, nil: all are delivered
	known  []driver.Verdict
	since  time.Time
}

// over reports whether every row is settled.
func (p *pending) over() bool {
	return !slices.ContainsFunc(p.rows, func(h inFlightRow) bool { return !h.done })
}

// inFlightRow has the further facts about a message.
type inFlightRow struct {
	id         string
	parkedKey  string // empty: of its key, or its own
	outOfBand  bool   // it was out of band
	outOfOrder bool
	done       bool // it is settled
	pg.History
}

func (h inFlightRow) rowID() string { return h.id }

func (p *pending) add(r *row, h inFlightRow) {
	h.id = r.id
	p.rows = append(p.rows, h)
	p.messages = append(p.messages, r.message)
	if p.keyOrder != nil {
		p.keyOrder = append(p.keyOrder, driver.InOrder)
	}
}

// setKeyOrder notes how the last message stands to the others of its key.
func (p *pending) setKeyOrder(order driver.KeyOrder) {
	if p.keyOrder == nil {
		p.keyOrder = make([]driver.KeyOrder, len(p.messages))
	}
	p.keyOrder[len(p.messages)-1] = order
}

// Subscribe compares the config with the table, as Check does, and takes the lease:
// a *penstock.HeldError if another holder has it. With several workers there is
// nothing to take, unless a single reader is still there.
func (t *Table) Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error) {
	if req.Lease <= 0 {
		req.Lease = driver.DefaultLease
	}
	if req.Start != driver.FromBeginning || req.Ephemeral {
		return nil, adopted.Field("start", "is not the beginning", "an adopted table has no other: mark or delete the rows that must not be delivered")
	}
	m, err := t.compare(ctx)
	if err != nil {
		return nil, err
	}
	s := &Source{t: t, m: m, st: newStatements(m, t.schema), pending: map[uint64]*pending{}, inFlight: map[string]bool{},
		late: late{known: map[string]bool{}}, sweep: make(chan struct{}, 1), average: averageAtFirst}
	if err := t.prove(ctx, &s.st); err != nil {
		return nil, t.explain(err)
	}
	usable, err := s.indexed(ctx)
	if err != nil {
		return nil, t.explain(err)
	}
	l, err := t.acquire(ctx, req, m) // from here on nothing fails
	if err != nil {
		return nil, err
	}
	s.lease, s.settled, s.track, s.seq = l, l.settled, newTrack(l.low, m.config.Margin, time.Now()), l.block(l.n)
	s.outOfBand.any = true
	if m.rls {
		t.log.Warn("row level security applies to this role: rows that its policies hide are not delivered", "hint", "give the role BYPASSRLS")
	}
	s.chooseWay(usable)
	looking, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.over.Go(func() { s.lookBack(looking) })
	if l.workers {
		return newWorker(s), nil
	}
	return s, nil
}

// Fetch implements driver.Source. It never rewinds.
func (s *Source) Fetch(ctx context.Context, limit driver.Limit) (driver.Batch, error) {
	if err := s.begin(&limit); err != nil {
		return driver.Batch{}, err
	}
	p, more, err := s.fetch(ctx, limit)
	if err != nil {
		return driver.Batch{}, s.t.explain(err)
	}
	return s.register(p, more), nil
}

// fetch lets rows out of band and the table take turns.
func (s *Source) fetch(ctx context.Context, limit driver.Limit) (p *pending, more bool, err error) {
	if s.outOfBandTurn() {
		if p, err = s.fetchOutOfBand(ctx, s.t.pool, limit); err != nil || len(p.messages) > 0 {
			return p, true, err
		}
	}
	if p, more, err = s.fetchTable(ctx, limit); err != nil || len(p.messages) > 0 || more {
		return p, more, err
	}
	if s.anyOutOfBand() { // before an empty batch
		p, err = s.fetchOutOfBand(ctx, s.t.pool, limit)
	}
	return p, err == nil && len(p.messages) > 0, err
}

func (s *Source) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// begin checks that rows may be fetched, and lets go of settled rows: statements that begin from now on see the state of
// them.
func (s *Source) begin(limit *driver.Limit) error {
	if err := limit.Validate(); err != nil {
		return err
	}
	limit.Messages = min(limit.Messages, s.m.config.Batch)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return penstock.ErrClosed
	}
	for _, id := range s.landed {
		delete(s.inFlight, id)
	}
	s.landed = s.landed[:0]
	return nil
}

// register makes p the next batch.
func (s *Source) register(p *pending, more bool) driver.Batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(p.messages) == 0 {
		return driver.Batch{More: more}
	}
	s.batches++
	p.number = s.batches
	s.pending[p.number] = p
	for i := range p.rows {
		s.inFlight[p.rows[i].id] = true
	}
	return driver.Batch{Messages: p.messages, Number: p.number, More: more, KeyOrder: p.keyOrder}
}

func (s *Source) isInFlight(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight[id]
}

func (s *Source) head() position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.track.head()
}

// averageAtFirst is the size of a message until one was read.
const averageAtFirst = 8 << 10

// Close implements driver.Source.
func (s *Source) Close(ctx context.Context) error {
	s.stop()
	s.over.Wait()
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	return s.log(ctx, 0)
}
