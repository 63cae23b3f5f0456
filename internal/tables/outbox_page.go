package tables

import (
	"context"
	"maps"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pg"
)

// Origin is where the messages of a batch are from. They take turns, so that
// neither a replay nor a thousand parked keys keep new messages waiting.
type Origin uint8

// The origins.
const (
	FromLog Origin = iota
	FromPark
	FromReplay
	Origins
)

// Page collects the messages of one Fetch.
type Page struct {
	Limit    driver.Limit
	From     Origin
	msgs     []penstock.Message
	keyOrder []driver.KeyOrder // nil: all are InOrder
	givenUp  map[int]string
	places   []int64 // their times: of numbers a later one may be the smaller
	bySeq    bool    // here it may not, and there are no places
	flights  []*Flight
	slab     []Flight
	bytes    int
	full     bool // there was a message that did not fit
	look     *Look
	upTo     int64 // read on behind it, if the reader has a position
	row      Row   // the last that was read
	behind   bool
	dest     []any // where rows are read to
}

// Scan reads a row.
type Scan = func(dest ...any) error

// Row is the columns that messages are read from, in the order of the queries.
type Row struct {
	Flight
	Seq     int64
	id, key string
	topic   string
	headers []byte
	payload []byte
}

// Dest is where they are read to, and the columns that follow.
func (r *Row) Dest(more ...any) []any {
	return append([]any{&r.Bucket, &r.TS, &r.Seq, &r.id, &r.key, &r.topic, &r.headers, &r.payload}, more...)
}

// More is where further columns are read to, and the one by which rows are distributed.
func (box *Outbox) More(r *Row, dest ...any) []any {
	if box.DistributedBy != "" {
		dest = append(dest, &r.RowID)
	}
	return dest
}

// Key is the message's.
func (r *Row) Key() string { return r.key }

// Message makes the message, on its first attempt.
func (r *Row) Message(box *Outbox) (penstock.Message, error) {
	if box.Adopted != nil {
		return box.Adopted.message(r)
	}
	m := penstock.Message{ID: r.id, Seq: r.Seq, Key: r.key, Topic: r.topic, Payload: r.payload, CreatedAt: r.TS.UTC(), Attempt: 1}
	if m.ID == "" {
		m.ID = box.IDs.ID(r.Seq, m.CreatedAt)
	}
	m.Headers = Headers(r.headers)
	return m, nil
}

// add takes m if it fits. The first one always does.
func (p *Page) add(m penstock.Message, order driver.KeyOrder, f Flight) bool {
	size := m.Size()
	if n := len(p.msgs); n > 0 && (n >= p.Limit.Messages || p.bytes+size > p.Limit.Bytes) {
		p.full = true
		return false
	}
	f.From = p.From
	p.bytes += size
	if order != driver.InOrder && p.keyOrder == nil {
		p.keyOrder = make([]driver.KeyOrder, len(p.msgs), cap(p.msgs))
	}
	if p.keyOrder != nil {
		p.keyOrder = append(p.keyOrder, order)
	}
	if !p.bySeq {
		p.places = append(p.places, f.TS.UnixMicro())
	}
	if len(p.slab) == cap(p.slab) { // many are allocated at once
		p.slab = make([]Flight, 0, max(cap(p.msgs)-len(p.msgs), 16))
	}
	p.slab = append(p.slab, f)
	p.msgs, p.flights = append(p.msgs, m), append(p.flights, &p.slab[len(p.slab)-1])
	return true
}

// Most is how many rows to ask for: one more than may be taken, which shows that there are more.
func (p *Page) Most() int { return p.Limit.Messages + 1 }

// Full means that there was a message that did not fit: rows that follow are not taken.
func (p *Page) Full() bool { return p.full }

// Replayed takes a row of a message that must be delivered again.
func (p *Page) Replayed(box *Outbox, scan Scan) error { return p.collect(box, scan, nil, nil) }

// collect takes a row of a new or replayed message, and notes that each scan has it. It passes over those that were settled.
func (p *Page) collect(box *Outbox, scan Scan, settled func(seq int64) bool, each func(r *Row)) error {
	if p.dest == nil {
		p.dest = p.row.Dest(box.More(&p.row, &p.behind)...)
	}
	r := &p.row
	*r = Row{}
	if err := scan(p.dest...); err != nil || p.full {
		return err
	}
	if settled == nil || !settled(r.Seq) {
		m, err := r.Message(box)
		order := driver.InOrder
		if p.behind {
			order = driver.BehindParked
		}
		if err != nil || !p.add(m, order, r.Flight) {
			return err
		}
	}
	if each != nil {
		each(r)
	}
	return nil
}

// Parked takes a parked message that has failed before.
func (p *Page) Parked(box *Outbox, r *Row, attempts int, since *time.Time, failures []byte) error {
	m, err := r.Message(box)
	if err != nil || p.full {
		return err
	}
	m.Attempt = attempts + 1
	if since != nil {
		m.FailedSince = since.UTC()
	}
	order := driver.InOrder
	if !r.InOrder {
		order = driver.OutOfOrder
	}
	h := pg.History{}
	h.Parse(failures)
	if reason, given := h.GivenUp(); p.add(m, order, r.Flight) && given {
		if p.givenUp == nil {
			p.givenUp = map[int]string{}
		}
		p.givenUp[len(p.msgs)-1] = reason
	}
	return nil
}

// Fetch implements driver.Source.
func (r *Reader) Fetch(ctx context.Context, limit driver.Limit) (driver.Batch, error) {
	if err := limit.Validate(); err != nil {
		return driver.Batch{}, err
	}
	if err := r.Usable(ctx); err != nil {
		return driver.Batch{}, err
	}
	r.Fetching.Lock()
	defer r.Fetching.Unlock()
	p, err := r.read(ctx, limit)
	if err != nil {
		r.doubts.Store(true)
		if ended := r.whyEnded(); ended != nil {
			return driver.Batch{}, ended
		}
		return driver.Batch{}, r.explain(err)
	}
	if unfit := p.unfit(); len(unfit.msgs) > 0 {
		if err := r.refuse(ctx, unfit); err != nil {
			return driver.Batch{}, err
		}
	}
	return r.register(p), nil
}

// register notes the messages in flight.
func (r *Reader) register(p *Page) driver.Batch {
	if p.bySeq && p.From == FromLog {
		r.readOn(p)
	}
	r.last = len(p.msgs)
	if len(p.msgs) == 0 {
		return driver.Batch{More: p.full}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number++
	for i, f := range p.flights {
		if p.bySeq && f.From == FromLog {
			break // it is open, and does not come again
		}
		r.inFlight[p.msgs[i].Seq] = f
		if f.InOrder {
			r.parkedKeys[p.msgs[i].Key]++
		}
	}
	return driver.Batch{Messages: p.msgs, KeyOrder: p.keyOrder, Places: p.places, GivenUp: p.givenUp, Number: r.number, More: p.full, Source: p.flights}
}

// read fills a page from the origin whose turn it is and that has rows.
func (r *Reader) read(ctx context.Context, limit driver.Limit) (*Page, error) {
	var asked [Origins]bool
	for turn := r.next(r.turn); ; {
		asked[turn] = true
		var p *Page
		if err := r.retries.Do(ctx, func() error {
			room := min(limit.Messages, 2*r.last+16)
			p = &Page{Limit: limit, From: turn, bySeq: r.bySeq, msgs: make([]penstock.Message, 0, room), flights: make([]*Flight, 0, room)}
			return r.orGone(r.on.ReadPage(ctx, p))
		}); err != nil {
			return nil, err
		}
		if p.look != nil {
			p.look.taken()
		}
		next := r.next(turn)
		if len(p.msgs) > 0 || asked[next] {
			r.turn = turn
			p.full = p.full || turn != FromLog && len(p.msgs) > 0 // a message that is due may be in flight, and is not asked for without a pause
			return p, nil
		}
		turn = next
	}
}

// next is whose turn it is after another: the log's, or of those that were seen to have something.
func (r *Reader) next(turn Origin) Origin {
	for {
		turn = (turn + 1) % Origins
		if turn == FromLog || r.Has[turn] {
			return turn
		}
	}
}

// Look is where new messages are looked for.
type Look struct {
	From   time.Time // after the low-water mark, or everywhere if that is due
	Per    int       // how many of each bucket
	begun  time.Time
	low    time.Time // behind it nothing was left out, zero if there was nothing
	margin time.Duration
	sweeps bool
	of     []int
	last   []time.Time
	reader *Reader
	page   *Page
}

// sweepPart limits sweeps to one part in this many of the time. While a snapshot stays open they walk over all deleted rows, while new
// messages and jobs wait: fewer than one in a hundred.
const sweepPart = 200

// Look begins to look for new messages, in this many buckets.
func (r *Reader) Look(p *Page, buckets int, sweep time.Duration) *Look {
	if r.doubts.Swap(false) { // a server that was promoted may lack the entry of a message, of which the mark is ahead by now
		r.swept = time.Time{}
		r.due.Forget()
	}
	l := &Look{From: r.Low, begun: time.Now(), sweeps: r.ID != 0 && time.Since(r.swept) > max(sweep, sweepPart*r.sweeping), of: make([]int, r.Box.Buckets), last: make([]time.Time, r.Box.Buckets), reader: r, page: p}
	if l.sweeps {
		l.From = time.Time{}
	}
	l.Per = min(p.Most(), max(r.perBucket, 2*p.Most()/max(buckets, 1)+8))
	return l
}

// Found takes a row of a new message.
func (l *Look) Found(scan Scan) error {
	return l.page.collect(&l.reader.Box, scan, nil, func(r *Row) { l.of[r.Bucket]++; l.last[r.Bucket] = r.TS })
}

// Done means that all rows were read. The new mark takes effect once the page belongs to the reader. If its
// transaction still fails, for example with the server, the mark would otherwise pass over messages that no
// reader has.
func (l *Look) Done(margin time.Duration) { l.page.look, l.margin = l, margin }

// taken notes the page's result.
func (l *Look) taken() {
	r, p := l.reader, l.page
	swept := l.sweeps
	if len(p.msgs) > 0 {
		last := p.flights[len(p.flights)-1].TS
		low, cut := last, false
		for i := range l.of {
			if l.of[i] == l.Per { // there may be more of it
				cut = true
				if l.last[i].Before(low) {
					low = l.last[i]
				}
			}
		}
		// Messages before the mark come first: if the page reaches behind it, those were all.
		swept = swept && (!cut && !p.full || low.After(r.Low))
		r.perBucket = 0
		if cut && !p.full && 2*len(p.msgs) < p.Most() { // most of the waiting messages are in few buckets
			r.perBucket = 4 * l.Per
		}
		p.full = p.full || cut
		l.low = low
	}
	now := r.now
	if now.IsZero() {
		now = time.Now()
	}
	switch { // neither a future time nor a clock that was set back keeps the mark ahead: messages written now would wait for sweeps
	case r.Box.Adopted != nil:
		r.moveLow(r.Box.Adopted.mark(l.low, l.margin))
	case r.Low.After(now):
		r.Low = now.Add(-l.margin)
	case l.low.After(now):
		r.moveLow(now.Add(-l.margin))
	case !l.low.IsZero():
		r.moveLow(l.low.Add(-l.margin))
	}
	if swept {
		r.swept, r.sweeping = time.Now(), time.Since(l.begun)
	}
}

// moveLow moves the mark forward. An ephemeral reader forgets the messages that it has returned before it.
func (r *Reader) moveLow(low time.Time) {
	if !low.After(r.Low) {
		return
	}
	r.Low = low
	if r.ID == 0 {
		r.mu.Lock()
		maps.DeleteFunc(r.inFlight, func(_ int64, f *Flight) bool { return !f.TS.After(low) })
		r.mu.Unlock()
	}
}
