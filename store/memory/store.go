// Package memory is a store that keeps everything in the process: the smallest
// program that passes internal/test/storetest. Read it to see what a store has to do
// without the SQL; use it in tests. Nothing survives the process.
//
// An outbox is a log in commit order. A transaction draws sequence numbers when
// it publishes but appends when it commits, so a lower number may come after a
// higher one, as in any database; because the log is what is read, a cursor is
// one position in it. Everything happens under one lock.
package memory

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/messageid"
)

// Options for New. The zero value is fine.
type Options struct {
	// Now is the clock of leases and messages. Default time.Now.
	Now func() time.Time
}

// Store is a handle on a database in memory. Safe for concurrent use.
type Store struct {
	db     *database
	closed atomic.Bool
}

var _ driver.Store = (*Store)(nil)

// database is what all handles share. Its lock guards everything below it.
type database struct {
	sync.Mutex
	now      func() time.Time
	migrated bool
	outboxes map[string]*outbox
	queues   map[string]*jobQueue
	lease    int64 // of a job, the last one drawn: one never comes again
}

type outbox struct {
	// ids begin with something random, so that no other outbox, nor one of the
	// same name that comes later, derives the same.
	ids messageid.Outbox
	seq int64 // the last one drawn
	// log is what is committed and not reclaimed; log[0] is at position base.
	log  []penstock.Message
	base int64
	subs map[string]*subscription
	// retention is how long log keeps what every subscription has settled.
	retention admin.Retention
	// dropped is for those who still hold the pointer.
	dropped bool
}

// subscription is what a reader leaves behind, durably so to speak.
type subscription struct {
	cursor int64          // everything before this position is settled,
	ahead  map[int64]bool // and what is at these
	// parked keys, dead letters by Seq: see outbox_parked.go.
	parked      map[parkedID]*parkedKey
	deadLetters map[int64]*deadLetter
	// replays is what has to be delivered again, in order.
	replays []*replayed

	epoch   int64
	holder  string
	since   time.Time
	until   time.Time
	sink    sinkState
	dropped bool // for the source that still holds the pointer
	settled int64
	recent  []settlement // of the last minute
}

// sinkState is what a source has reported.
type sinkState struct {
	epoch int64
	down  time.Time
	why   string
}

type replayed struct {
	msg     penstock.Message
	settled bool
}

type settlement struct {
	at time.Time
	n  int
}

// New makes an empty database and a handle on it.
func New(o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{db: &database{now: o.Now, outboxes: map[string]*outbox{}, queues: map[string]*jobQueue{}}}
}

// Another returns a second handle on the same database, as another process
// would have; closing one does not close the other.
func (s *Store) Another() *Store { return &Store{db: s.db} }

// Close ends this handle; a second Close returns nil.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}

// enter begins an operation. When err is nil the database is locked and the
// caller must unlock it.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed.Load() {
		return penstock.ErrClosed
	}
	s.db.Lock()
	return nil
}

// enterOutbox is enter for an operation on one outbox.
func (s *Store) enterOutbox(ctx context.Context, name string) (*outbox, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	o, err := s.db.outbox(name)
	if err != nil {
		s.db.Unlock()
	}
	return o, err
}

func (db *database) outbox(name string) (*outbox, error) {
	if !db.migrated {
		return nil, penstock.WithHint(penstock.ErrNotMigrated, "call Migrate first")
	}
	if o := db.outboxes[name]; o != nil {
		return o, nil
	}
	return nil, penstock.WithHint(fmt.Errorf("outbox %q: %w", name, penstock.ErrNoOutbox), "create it with CreateOutbox")
}

// Migrate makes the database ready for use.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.db.Unlock()
	s.db.migrated = true
	return nil
}

// CreateOutbox implements driver.Store.
func (s *Store) CreateOutbox(ctx context.Context, name string) error {
	if err := penstock.ValidateOutboxName(name); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.db.Unlock()
	if o, err := s.db.outbox(name); s.db.queues[name] != nil {
		return sharesName("outbox", name, "a queue", penstock.ErrQueueExists)
	} else if o != nil {
		return fmt.Errorf("outbox %q: %w", name, penstock.ErrOutboxExists)
	} else if !s.db.migrated {
		return err
	}
	s.db.outboxes[name] = &outbox{ids: messageid.Outbox{UID: rand.Text()}, subs: map[string]*subscription{}}
	return nil
}

// DropOutbox implements driver.Store.
func (s *Store) DropOutbox(ctx context.Context, name string) error {
	o, err := s.enterOutbox(ctx, name)
	if err != nil {
		return err
	}
	defer s.db.Unlock()
	o.dropped = true
	delete(s.db.outboxes, name)
	return nil
}

// Maintain lets go of what every subscription has settled and nobody wants to
// retain. Without a subscription nothing is settled.
func (s *Store) Maintain(ctx context.Context, name string) error {
	o, err := s.enterOutbox(ctx, name)
	if err != nil {
		return err
	}
	defer s.db.Unlock()
	if len(o.subs) == 0 {
		return nil
	}
	low := o.end()
	for _, sub := range o.subs {
		low = min(low, sub.cursor)
	}
	size := o.size()
	for o.base < low && !o.retains(&o.log[0], size, s.db.now()) {
		size -= int64(o.log[0].Size())
		o.log = o.log[1:]
		o.base++
	}
	o.log = slices.Clone(o.log) // and the rest of the array is free
	return nil
}

// retains reports whether m, the oldest of size bytes, is kept for Replay.
func (o *outbox) retains(m *penstock.Message, size int64, now time.Time) bool {
	r := o.retention
	if r.Age > 0 && now.Sub(m.CreatedAt) >= r.Age || r.Bytes > 0 && size > r.Bytes {
		return false
	}
	return r.Age > 0 || r.Bytes > 0
}

func (o *outbox) size() (n int64) {
	for i := range o.log {
		n += int64(o.log[i].Size())
	}
	return n
}

// end is the position after the last committed message.
func (o *outbox) end() int64 { return o.base + int64(len(o.log)) }

// clone keeps what is stored apart from what callers hold.
func clone(m penstock.Message) penstock.Message {
	m.Payload = slices.Clone(m.Payload)
	if len(m.Headers) == 0 {
		m.Headers = nil
	}
	m.Headers = maps.Clone(m.Headers)
	return m
}
