package postgres

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/messageid"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/seqset"
)

// Source is one subscription, held under a lease, or an ephemeral reader.
//
// Reading runs ahead of settling. Fetch keeps the reader's position in its session.
// Each batch carries the cursor to store, which Settle does once that batch and all
// before it are settled.
type Source struct {
	store *Store
	req   driver.Subscribe
	ids   messageid.Outbox
	id    int64     // of the subscription, 0 if ephemeral
	epoch int64     // of the lease
	since time.Time // when it was taken

	opening sync.Mutex // one goroutine opens a session
	writing sync.Mutex // one cursor write at a time

	mu         sync.Mutex
	sess       *session
	rewound    bool // the next Fetch must say so
	closed     bool
	batches    uint64          // returned so far, over all sessions
	passed     uint64          // the last that the cursor has passed, or that is of an earlier session
	ahead      seqset.Set      // settled ahead of the cursor by this session,
	before     seqset.Set      // and by those before it
	until      uint64          // the batch with which the cursor has passed all of that; 0: not read yet
	inFlight   map[string]bool // parked keys that must not be read again
	reached    cursor          // the newest that may be stored
	stored     cursor          // the newest that is
	count      int64           // messages settled, as stored
	landed     []int64         // seqs of dead letters sent back that are settled
	parkedKeys parkedKeys
	low        int64 // the bound for snapshots taken from now on (see snapshotBound)
	high       int64 // the sequence's value at the last poll
}

var _ driver.Source = (*Source)(nil)

// pending has the facts about a batch that Settle needs.
type pending struct {
	sess     *session
	number   uint64
	after    cursor // once this batch is settled
	origin   origin
	messages []penstock.Message
	keyOrder []driver.KeyOrder

	fetched   []fetchedKey // of parked ones: their keys
	histories []pg.History // of dead letters: the messages behind each
	givenUp   map[int]string
	replay    replayed // of a replay
}

// origin is where a batch was read.
type origin uint8

const (
	fromStream origin = iota
	fromPark
	fromDeadLetters // dead letters that were sent back
	fromReplay
)

func (p *pending) order(at int) driver.KeyOrder {
	if at < len(p.keyOrder) {
		return p.keyOrder[at]
	}
	return driver.InOrder
}

// places of parked messages are in the order in which they were parked, and before those of messages that are not parked
// yet. Settle takes the verdicts on a key in that order. A transaction that committed late has parked a lower seq behind a
// higher one.
func (p *pending) places() (places []int64) {
	for i := range p.fetched {
		for _, at := range p.fetched[i].p {
			places = append(places, math.MinInt64+at)
		}
	}
	return places
}

// position is how far reading has come.
type position struct {
	cursor
	high   int64   // of the window, while paging
	rebase *rebase // not nil after a restore, until the restored messages are read
	bytes  int     // average size of a message, for the next page
	count  int     // messages of the last page that had any
}

// rebase is the way from another cluster's cursor to one of this cluster's.
type rebase struct {
	from cursor
	to   snapshotBound
	pos  int64
	high int64
}

// Subscribe takes the lease, creating the subscription if there is none.
func (s *Store) Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error) {
	src, err := s.subscribe(ctx, req)
	return src, lacks(err, granted("penstock outbox grant ROLE --relay"))
}

func (s *Store) subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error) {
	req.SetDefaults()
	if err := req.Validate(); err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	// Who stands by asks often, and a session is two connections.
	if err := s.held(ctx, req); err != nil {
		return nil, err
	}
	// On its own connections from the first question on: one of the pool's may
	// have died since it was used last.
	sess, err := s.newSession(ctx, req.Outbox)
	if err != nil {
		return nil, err
	}
	src := &Source{store: s, req: req}
	var start cursor
	if src.ids, err = s.outboxIDs(ctx, sess.write, req.Outbox); err == nil {
		start, err = src.startingCursor(ctx, sess)
	}
	if err == nil && !req.Ephemeral {
		start, err = src.acquire(ctx, sess, start)
	}
	if err == nil {
		err = src.begin(ctx, sess, start)
	}
	if err != nil {
		sess.close()
		return nil, explain(err)
	}
	return src, nil
}

// begin makes start the position of a new session.
func (src *Source) begin(ctx context.Context, sess *session, start cursor) error {
	sess.at = position{cursor: start, high: math.MaxInt64}
	sess.settled = start.ahead
	low := start.end().low
	sess.decoder.ids = src.ids
	sess.outOfBand = newOutOfBand()
	if start.system != sess.system {
		if start.system != noSystem {
			src.store.log.Warn("the cursor is another cluster's, as after a restore: unsettled messages are read again by seq, and some may be delivered twice",
				"outbox", src.req.Outbox, "subscription", src.req.Subscription)
		}
		to, high, err := sess.freshBound(ctx)
		if err != nil {
			return err
		}
		sess.at.rebase = newRebase(start, to, high)
		low = to.low // the old one is the other cluster's
	}
	if !src.req.Ephemeral {
		if err := src.loadParkedKeys(ctx, sess); err != nil {
			return err
		}
	}
	src.mu.Lock()
	defer src.mu.Unlock()
	if src.closed {
		return penstock.ErrClosed
	}
	src.sess = sess
	src.passed, src.ahead = src.batches, nil
	src.before, src.until, src.inFlight = start.ahead, 0, map[string]bool{}
	src.reached, src.stored = start, start
	src.low, src.high = low, 0
	return nil
}

// session returns the open session, or opens one anew at the durable cursor.
func (src *Source) session(ctx context.Context) (*session, error) {
	src.opening.Lock()
	defer src.opening.Unlock()
	src.mu.Lock()
	sess, closed, start := src.sess, src.closed, src.stored
	src.mu.Unlock()
	switch {
	case closed:
		return nil, penstock.ErrClosed
	case !sess.dead.Load():
		return sess, nil
	}
	src.store.pool.Reset() // the cause that cut this session has cut its idle connections too
	fresh, err := src.store.newSession(ctx, src.req.Outbox)
	if err != nil {
		return nil, err
	}
	if src.req.Ephemeral {
		start.system = noSystem // its snapshot may be from before a crash: read on by seq
	} else {
		start, err = src.resume(ctx, fresh)
	}
	if err == nil {
		err = src.begin(ctx, fresh, start)
	}
	if err != nil {
		fresh.close()
		return nil, explain(err)
	}
	src.mu.Lock()
	src.rewound = true
	src.mu.Unlock()
	return fresh, nil
}

// Fetch implements driver.Source.
func (src *Source) Fetch(ctx context.Context, limit driver.Limit) (driver.Batch, error) {
	if err := limit.Validate(); err != nil {
		return driver.Batch{}, err
	}
	sess, err := src.session(ctx)
	if err != nil {
		return driver.Batch{}, err
	}
	var p *pending
	if sess.outOfBand.turn() { // it and the stream take turns
		p, err = src.fetchOutOfBand(ctx, sess, limit)
	}
	if err == nil && p == nil {
		p, err = src.fetchStream(ctx, sess, limit)
	}
	if err == nil && len(p.messages) == 0 && sess.outOfBand.any() {
		var beside *pending
		if beside, err = src.fetchOutOfBand(ctx, sess, limit); beside != nil {
			p = beside
		}
	}
	if err != nil {
		return driver.Batch{}, sess.failed(err)
	}
	batch, flush, err := src.register(sess, p)
	if err == nil && flush {
		if err = src.Renew(ctx); err != nil && batch.Rewound {
			src.mu.Lock()
			src.rewound = true // the caller does not see this batch
			src.mu.Unlock()
		}
	}
	return batch, err
}

// fetchStream is fetchNext with the known states of the messages' keys.
func (src *Source) fetchStream(ctx context.Context, sess *session, limit driver.Limit) (*pending, error) {
	messages, err := src.fetchNext(ctx, sess, limit)
	if err != nil {
		return nil, err
	}
	keyOrder, err := src.behind(ctx, sess, messages)
	if err != nil {
		sess.kill() // its position has moved past messages that no caller will see
		return nil, err
	}
	return &pending{messages: messages, keyOrder: keyOrder}, nil
}

// fetchNext reads on in the outbox and moves the session's position.
func (src *Source) fetchNext(ctx context.Context, sess *session, limit driver.Limit) ([]penstock.Message, error) {
	rows := limit.Messages
	if sess.at.bytes > 0 {
		rows = max(1, min(rows, limit.Bytes/sess.at.bytes))
	}
	read := src.readNew
	switch {
	case sess.at.rebase != nil:
		read = src.readRebase
	case sess.at.paging():
		read = src.readPage
	}
	page, next, err := read(ctx, sess, rows, limit.Bytes)
	if err != nil {
		return nil, err
	}
	more := sess.at.paging() || sess.at.rebase != nil
	if n := len(page.messages); n > 0 {
		next.bytes, next.count = max(1, page.bytes/n), n
		page.messages = sess.unsettled(page.messages)
		more = true
	}
	sess.at = next
	if len(page.messages) == 0 && more {
		return src.fetchNext(ctx, sess, limit) // the window was at its end, or all of it is settled: poll
	}
	return page.messages, nil
}

// unsettled leaves out messages that an earlier session has settled. Each such message is read
// once.
func (sess *session) unsettled(messages []penstock.Message) []penstock.Message {
	if sess.found == sess.settled.Len() {
		return messages
	}
	rest := slices.DeleteFunc(messages, func(m penstock.Message) bool { return sess.settled.Has(m.Seq) })
	sess.found += int64(len(messages) - len(rest))
	return rest
}

// register gives a fetched batch its number. flush is true if the end of a backlog must be stored,
// so that its last segment can be reclaimed without waiting for the next message.
func (src *Source) register(sess *session, p *pending) (batch driver.Batch, flush bool, err error) {
	src.mu.Lock()
	defer src.mu.Unlock()
	if src.closed {
		return batch, false, penstock.ErrClosed
	}
	if src.sess != sess {
		return batch, false, errForgotten
	}
	batch = driver.Batch{Messages: p.messages, KeyOrder: p.keyOrder, More: sess.at.paging() || sess.at.rebase != nil || sess.outOfBand.any(), Rewound: src.rewound}
	src.rewound = false
	if src.until == 0 && sess.found == sess.settled.Len() {
		src.until = src.batches + 1
	}
	if len(p.messages) == 0 {
		idle := src.passed == src.batches
		if idle {
			src.reached = sess.at.cursor
			src.until = min(src.until, src.batches)
		}
		return batch, idle && src.stored.paging() && !src.reached.paging(), nil
	}
	src.batches++
	batch.Number = src.batches
	if p.keyOrder != nil {
		p.setKeyOrder(len(p.messages)-1, p.order(len(p.messages)-1))
		batch.KeyOrder = p.keyOrder
	}
	batch.Places, batch.GivenUp, batch.Source = p.places(), p.givenUp, p
	p.sess, p.number, p.after = sess, src.batches, sess.at.cursor
	return batch, false, nil
}

var errForgotten = errors.New("the connection was lost, and the source went back to its durable cursor: fetch again")
