package portable

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pgerror"
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
	places   []int64 // ts: seq may come from blocks of numbers that sessions have
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
	return []any{&r.bucket, &r.ts, &r.seq, &r.id, &r.key, &r.topic, &r.headers, &r.payload}
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
	p.places = append(p.places, f.ts.UnixMicro())
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
		if f.line {
			s.lines[p.msgs[i].Key]++
		}
	}
	if s.id != 0 {
		s.open[s.number] = &openBatch{msgs: p.msgs, left: len(p.msgs)}
	}
	return penstock.Batch{Messages: slices.Clone(p.msgs), KeyOrder: p.keyOrder, Places: p.places, Number: s.number, More: p.full}, nil
}

// read fills a page from whoever's turn it is and has something.
func (s *source) read(ctx context.Context, limit penstock.Limit) (*page, error) {
	limit.Bytes = s.store.dialect().most(limit.Bytes)
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

// readFrom asks, in one round trip, how the subscription is and for a page of one origin.
func (s *source) readFrom(ctx context.Context, p *page) error {
	s.mu.Lock()
	seqs := slices.Collect(maps.Keys(s.inFlight))
	s.mu.Unlock()
	if seqs == nil {
		seqs = []int64{}
	}
	*p = page{limit: p.limit, from: p.from}
	state := true
	b := &pgx.Batch{}
	if s.id != 0 {
		b.Queue(s.sql("state"), s.id, s.epoch, s.reads()).QueryRow(func(r pgx.Row) error {
			return r.Scan(&state, &s.has[fromPark], &s.has[fromReplay])
		})
	}
	switch p.from {
	case fromLog:
		s.queueLog(b, p, seqs)
	case fromPark:
		s.queueParked(b, p, seqs)
	case fromReplay:
		b.Queue(s.sql("fetch_replay"), s.id, s.epoch, seqs, p.limit.Messages+1, s.reads()).Query(func(rows pgx.Rows) error {
			return p.collect(rows, &s.box, nil)
		})
	}
	err := s.store.pool.SendBatch(ctx, b).Close()
	if isNoRows(err) || err == nil && !state || pgerror.State(err) == "42P01" {
		return s.gone(ctx)
	}
	return err
}

// collect reads rows of new or replayed messages, and tells each how far the reading has come.
func (p *page) collect(rows pgx.Rows, box *outbox, each func(r *row)) error {
	var r row
	var behind bool
	_, err := pgx.ForEachRow(rows, append(r.dest(), &behind), func() error {
		m, err := r.message(box)
		order := penstock.InOrder
		if behind {
			order = penstock.BehindParked
		}
		if err == nil && !p.full && p.add(m, order, r.flight) && each != nil {
			each(&r)
		}
		return err
	})
	return err
}

// queueLog asks for new messages: after the low-water mark, or everywhere if that is due.
func (s *source) queueLog(b *pgx.Batch, p *page, seqs []int64) {
	from, sweeps := s.low, s.id != 0 && time.Since(s.swept) > s.store.opts.Sweep
	if sweeps {
		from = time.Time{}
	}
	most := p.limit.Messages + 1
	buckets := s.reads()
	per := min(most, max(s.perBucket, 2*most/max(len(buckets), 1)+8))
	b.Queue(s.sql("fetch"), s.id, s.epoch, from.UTC(), seqs, per, most, p.limit.Bytes, buckets, s.timesInFlight()).Query(func(rows pgx.Rows) error {
		of, last := make([]int, s.box.buckets), make([]time.Time, s.box.buckets)
		if err := p.collect(rows, &s.box, func(r *row) { of[r.bucket]++; last[r.bucket] = r.ts }); err != nil {
			return err
		}
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
	})
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

// queueParked asks for what is parked and due. None of a key comes again before what is in flight of it is settled.
func (s *source) queueParked(b *pgx.Batch, p *page, seqs []int64) {
	s.mu.Lock()
	lines := slices.Collect(maps.Keys(s.lines))
	s.mu.Unlock()
	if lines == nil {
		lines = []string{}
	}
	b.Queue(s.sql("fetch_parked"), s.id, s.epoch, seqs, p.limit.Messages+1, lines, s.reads()).Query(func(rows pgx.Rows) error {
		var r row
		var head, refused int64 // of which line, and whether that ends here
		var attempts int
		var since *time.Time
		_, err := pgx.ForEachRow(rows, append(r.dest(), &r.line, &head, &attempts, &since), func() error {
			if refused == head || attempts > 0 && r.seq != head {
				refused = head // it was overtaken by a transaction that committed late
				return nil
			}
			m, err := r.message(&s.box)
			if err != nil || p.full {
				return err
			}
			m.Attempt = attempts + 1
			if since != nil {
				m.FailedSince = since.UTC()
			}
			order := penstock.InOrder
			if !r.line {
				order = penstock.OutOfOrder
			}
			p.add(m, order, r.flight)
			return nil
		})
		return err
	})
}
