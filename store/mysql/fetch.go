package mysql

import (
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
)

// origin is where the messages of a batch are from. They take turns, so that
// neither a replay nor a thousand parked keys keep new messages waiting.
type origin uint8

const (
	fromLog origin = iota
	fromPark
	fromReplay
	origins
)

// page collects the messages of one Fetch.
type page struct {
	limit    penstock.Limit
	from     origin
	msgs     []penstock.Message
	keyOrder []penstock.KeyOrder
	flights  []*flight
	bytes    int
	full     bool // there was a message that did not fit
}

// row is the columns that messages are read from, in the order of the queries.
type row struct {
	flight
	seq     int64
	id, key string
	topic   string
	headers []byte
	payload []byte
}

func (r *row) dest() []any {
	return []any{&r.seq, &r.ts, &r.bucket, &r.id, &r.key, &r.topic, &r.headers, &r.payload}
}

// message makes the message, on its first attempt.
func (r *row) message(box *outbox) (penstock.Message, error) {
	m := penstock.Message{ID: r.id, Seq: r.seq, Key: r.key, Topic: r.topic, Payload: r.payload, CreatedAt: r.ts.UTC(), Attempt: 1}
	if m.ID == "" {
		m.ID = box.ids.ID(r.seq, m.CreatedAt)
	}
	if len(r.headers) == 0 || string(r.headers) == "{}" {
		return m, nil
	}
	return m, json.Unmarshal(r.headers, &m.Headers)
}

// add takes m if it fits. The first one always does.
func (p *page) add(m penstock.Message, order penstock.KeyOrder, f flight) bool {
	size := m.Size()
	if n := len(p.msgs); n > 0 && (n >= p.limit.Messages || p.bytes+size > p.limit.Bytes) {
		p.full = true
		return false
	}
	f.from = p.from
	p.bytes += size
	p.msgs, p.keyOrder, p.flights = append(p.msgs, m), append(p.keyOrder, order), append(p.flights, &f)
	return true
}

// Fetch implements penstock.Source.
func (s *source) Fetch(ctx context.Context, limit penstock.Limit) (penstock.Batch, error) {
	if err := limit.Validate(); err != nil {
		return penstock.Batch{}, err
	}
	if err := s.usable(ctx); err != nil {
		return penstock.Batch{}, err
	}
	s.fetching.Lock()
	defer s.fetching.Unlock()
	p, err := s.read(ctx, limit)
	if err != nil {
		if ended := s.usable(context.WithoutCancel(ctx)); ended != nil && s.store.checked.Load() {
			return penstock.Batch{}, ended
		}
		return penstock.Batch{}, s.store.explain(err)
	}
	if len(p.msgs) == 0 {
		return penstock.Batch{}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	for i, f := range p.flights {
		f.batch = s.number
		s.inFlight[p.msgs[i].Seq] = f
		if f.inOrder {
			s.parkedKeys[p.msgs[i].Key]++
		}
	}
	if s.id != 0 {
		s.open[s.number] = &openBatch{msgs: p.msgs, left: len(p.msgs)}
	}
	return penstock.Batch{Messages: slices.Clone(p.msgs), KeyOrder: p.keyOrder, Number: s.number, More: p.full}, nil
}

// read fills a page from whoever's turn it is and has something.
func (s *source) read(ctx context.Context, limit penstock.Limit) (*page, error) {
	var asked [origins]bool
	for turn := s.next(s.turn); ; {
		asked[turn] = true
		p := &page{limit: limit, from: turn}
		if err := s.store.retries.Do(ctx, func() error { return s.readFrom(ctx, p) }); err != nil {
			return nil, err
		}
		next := s.next(turn)
		if len(p.msgs) > 0 || asked[next] {
			s.turn = turn
			p.full = p.full || turn != fromLog
			return p, nil
		}
		turn = next
	}
}

// next is whose turn it is after another: the log's, or of those that were seen to have something.
func (s *source) next(turn origin) origin {
	for {
		turn = (turn + 1) % origins
		if turn == fromLog || s.has[turn] {
			return turn
		}
	}
}

// readFrom asks, in one round trip, how the subscription is and for a page of one origin; for parked messages a second follows.
func (s *source) readFrom(ctx context.Context, p *page) error {
	*p = page{limit: p.limit, from: p.from}
	there, mine := s.id == 0, true
	b := &batch{}
	if s.id != 0 {
		b.one(&there, s.sql("state", nil), &mine, &s.has[fromPark], &s.has[fromReplay])
	}
	var after func() error
	switch p.from {
	case fromLog:
		after = s.queueLog(b, p)
	case fromPark:
		after = s.queueDue(ctx, b, p)
	case fromReplay:
		b.read(func(rows *sql.Rows) error { return p.collect(rows, &s.box, nil) },
			s.sql("fetch_replay", words{"in_flight": list(s.flying(nil)), "most": p.limit.Messages + 1}))
	}
	err := s.store.ask(ctx, b)
	if err == nil && !(there && mine) || number(err) == noSuchTable {
		return s.gone(ctx, s.store)
	}
	if err == nil && after != nil {
		err = after()
	}
	return err
}

// flying are the seqs in flight, of one bucket if that is given.
func (s *source) flying(bucket *int) (seqs []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for seq, f := range s.inFlight {
		if bucket == nil || f.bucket == *bucket {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// collect reads a row of a new or replayed message, and tells each that it has.
func (p *page) collect(rows *sql.Rows, box *outbox, each func(r *row)) error {
	var r row
	var behind bool
	if err := rows.Scan(append(r.dest(), &behind)...); err != nil {
		return err
	}
	m, err := r.message(box)
	order := penstock.InOrder
	if behind {
		order = penstock.BehindParked
	}
	if err == nil && !p.full && p.add(m, order, r.flight) && each != nil {
		each(&r)
	}
	return err
}

// queueLog asks for new messages: after the low-water mark, or everywhere if that is due. What it returns is to be called then.
func (s *source) queueLog(b *batch, p *page) (after func() error) {
	from, sweeps := s.low, s.id != 0 && time.Since(s.swept) > s.store.opts.Sweep
	if sweeps {
		from = time.Time{}
	}
	most := p.limit.Messages + 1
	per := min(most, max(s.perBucket, 2*most/s.box.buckets+8))
	buckets := make([]string, s.box.buckets)
	for i := range buckets {
		buckets[i] = s.sql("fetch_bucket", words{"bucket": i, "low": at(from), "in_flight": list(s.flying(&i)), "per": per})
	}
	of, last := make([]int, s.box.buckets), make([]time.Time, s.box.buckets)
	b.read(func(rows *sql.Rows) error {
		return p.collect(rows, &s.box, func(r *row) { of[r.bucket]++; last[r.bucket] = r.ts })
	}, s.sql("fetch", words{"of_buckets": strings.Join(buckets, " union all "), "most": most, "bytes": p.limit.Bytes}))
	return func() error {
		if len(p.msgs) == 0 {
			if sweeps {
				s.swept = time.Now()
			}
			return nil
		}
		low, cut := p.msgs[len(p.msgs)-1].CreatedAt, false
		for i := range of {
			if of[i] == per { // there may be more of it
				cut = true
				low = earlier(low, last[i])
			}
		}
		s.perBucket = 0
		if cut && !p.full && 2*len(p.msgs) < most { // most of what waits is in few buckets
			s.perBucket = 4 * per
		}
		if sweeps && !cut && !p.full {
			s.swept = time.Now()
		}
		p.full = p.full || cut
		s.moveLow(low.Add(-s.store.opts.Margin))
		return nil
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// moveLow moves the mark forward. An ephemeral reader forgets what it has returned before it.
func (s *source) moveLow(low time.Time) {
	if !low.After(s.low) {
		return
	}
	s.low = low
	if s.id == 0 {
		s.mu.Lock()
		maps.DeleteFunc(s.inFlight, func(_ int64, f *flight) bool { return !f.ts.After(low) })
		s.mu.Unlock()
	}
}

// head is a message that is due, and before all others of its parked key.
type head struct {
	seq      int64
	key      []byte // nil of what is parked out of order
	ts       time.Time
	attempts int
}

// queueDue asks for heads that are due. None of a key comes again before what is in flight of it is settled.
func (s *source) queueDue(ctx context.Context, b *batch, p *page) (after func() error) {
	s.mu.Lock()
	keys, args := texts(slices.Collect(maps.Keys(s.parkedKeys)))
	s.mu.Unlock()
	var heads []head
	most := p.limit.Messages + 1
	statement := s.sql("due", words{"in_flight": list(s.flying(nil)), "keys": keys, "most": most})
	if len(args) == 0 {
		statement = strings.ReplaceAll(statement, "h.parked_key not in (null)", "true")
	}
	b.read(func(rows *sql.Rows) error {
		var h head
		err := rows.Scan(&h.seq, &h.key, &h.ts, &h.attempts)
		heads = append(heads, h)
		return err
	}, statement, args...)
	return func() error {
		if len(heads) == 0 {
			return nil
		}
		return s.readParked(ctx, p, heads)
	}
}

// readParked reads the heads, and behind a head that was never refused what follows it.
func (s *source) readParked(ctx context.Context, p *page, heads []head) error {
	most := p.limit.Messages + 1
	behind := make([][]int64, len(heads))
	b := &batch{}
	for i, h := range heads {
		behind[i] = []int64{h.seq}
		if h.key == nil || h.attempts > 0 {
			continue
		}
		b.read(func(rows *sql.Rows) error {
			var seq int64
			err := rows.Scan(&seq)
			behind[i] = append(behind[i], seq)
			return err
		}, s.sql("behind_head", words{"ts": at(h.ts), "head": h.seq, "most": most}), h.key)
		if b.size > packet {
			if err := s.store.ask(ctx, b); err != nil {
				return err
			}
			b = &batch{}
		}
	}
	if len(b.reads) > 0 {
		if err := s.store.ask(ctx, b); err != nil {
			return err
		}
	}
	type parkedRow struct {
		row
		attempts int
		since    sql.NullTime
	}
	found := map[int64]*parkedRow{}
	seqs := slices.Concat(behind...)
	b = &batch{}
	b.read(func(rows *sql.Rows) error {
		r := &parkedRow{}
		err := rows.Scan(append(r.dest(), &r.inOrder, &r.attempts, &r.since)...)
		found[r.seq] = r
		return err
	}, s.sql("fetch_parked", words{"seqs": list(seqs[:min(len(seqs), most)])}))
	if err := s.store.ask(ctx, b); err != nil {
		return err
	}
	for _, of := range behind {
		for i, seq := range of {
			r := found[seq]
			if r == nil || i > 0 && r.attempts > 0 {
				break // it was overtaken by a transaction that committed late, or the page ends here
			}
			m, err := r.message(&s.box)
			if err != nil {
				return err
			}
			m.Attempt = r.attempts + 1
			if r.since.Valid {
				m.FailedSince = r.since.Time.UTC()
			}
			order := penstock.InOrder
			if !r.inOrder {
				order = penstock.OutOfOrder
			}
			if !p.full {
				p.add(m, order, r.flight)
			}
		}
	}
	return nil
}
