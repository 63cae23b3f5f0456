// Package memory is a store that keeps everything in the process: the smallest
// program that passes store/storetest. Read it to see what a store has to do
// without the SQL; use it in tests. Nothing survives the process.
//
// An outbox is a log in commit order. A transaction draws sequence numbers when
// it publishes but appends when it commits, so a lower number may come after a
// higher one, as in any database; because the log is what is read, a cursor is
// one position in it. Everything happens under one lock.
package memory

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
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

var _ penstock.Store = (*Store)(nil)

// database is what all handles share. Its lock guards everything below it.
type database struct {
	sync.Mutex
	now      func() time.Time
	migrated bool
	outboxes map[string]*outbox
}

type outbox struct {
	// tag begins every id. It is random, so that no other outbox, nor one of the
	// same name that comes later, derives the same ids.
	tag string
	seq int64 // the last one drawn
	// log is what is committed and not reclaimed; log[0] is at position base.
	log  []penstock.Message
	base int64
	subs map[string]*subscription
	// dropped is for those who still hold the pointer.
	dropped bool
}

// subscription is what a reader leaves behind, durably so to speak.
type subscription struct {
	cursor  int64              // everything before this position is settled
	retries []penstock.Message // dead letters sent back and not settled since
	dead    []penstock.DeadLetter
	epoch   int64
	holder  string
	until   time.Time
	settled int64
	recent  []settlement // of the last minute
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
	return &Store{db: &database{now: o.Now, outboxes: map[string]*outbox{}}}
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

// CreateOutbox implements penstock.Store.
func (s *Store) CreateOutbox(ctx context.Context, name string) error {
	if err := penstock.ValidateOutboxName(name); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.db.Unlock()
	if o, err := s.db.outbox(name); o != nil {
		return fmt.Errorf("outbox %q: %w", name, penstock.ErrOutboxExists)
	} else if !s.db.migrated {
		return err
	}
	s.db.outboxes[name] = &outbox{tag: rand.Text(), subs: map[string]*subscription{}}
	return nil
}

// DropOutbox implements penstock.Store.
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

// Maintain lets go of what every subscription has settled. Without a
// subscription nothing is settled.
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
	o.log = slices.Clone(o.log[low-o.base:])
	o.base = low
	return nil
}

// end is the position after the last committed message.
func (o *outbox) end() int64 { return o.base + int64(len(o.log)) }

// Status implements penstock.Store.
func (s *Store) Status(ctx context.Context) ([]penstock.OutboxStatus, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.db.Unlock()
	if !s.db.migrated {
		return nil, penstock.ErrNotMigrated
	}
	all := []penstock.OutboxStatus{}
	for name, o := range s.db.outboxes {
		st := penstock.OutboxStatus{Outbox: name}
		for i := range o.log {
			st.Bytes += int64(o.log[i].Size())
		}
		for subName, sub := range o.subs {
			st.Subscriptions = append(st.Subscriptions, sub.status(subName, o, s.db.now()))
		}
		slices.SortFunc(st.Subscriptions, func(a, b penstock.SubscriptionStatus) int { return cmp.Compare(a.Subscription, b.Subscription) })
		all = append(all, st)
	}
	slices.SortFunc(all, func(a, b penstock.OutboxStatus) int { return cmp.Compare(a.Outbox, b.Outbox) })
	return all, nil
}

func (sub *subscription) status(name string, o *outbox, now time.Time) penstock.SubscriptionStatus {
	st := penstock.SubscriptionStatus{
		Subscription: name,
		Backlog:      o.end() - sub.cursor + int64(len(sub.retries)),
		Settled:      sub.settled,
		DeadLetters:  int64(len(sub.dead)),
		Epoch:        sub.epoch,
	}
	for _, backlog := range [][]penstock.Message{sub.retries, o.log[sub.cursor-o.base:]} {
		for i := range backlog {
			st.OldestAge = max(st.OldestAge, now.Sub(backlog[i].CreatedAt))
		}
	}
	for _, r := range sub.recent {
		if now.Sub(r.at) < time.Minute {
			st.Rate += float64(r.n) / 60
		}
	}
	if sub.holder != "" && now.Before(sub.until) {
		st.Holder, st.LeaseUntil = sub.holder, sub.until
	}
	return st
}

// DeadLetters implements penstock.Store.
func (s *Store) DeadLetters(ctx context.Context, name, subscription string, limit int) ([]penstock.DeadLetter, error) {
	o, err := s.enterOutbox(ctx, name)
	if err != nil {
		return nil, err
	}
	defer s.db.Unlock()
	sub := o.subs[subscription]
	if sub == nil {
		return nil, nil
	}
	letters := slices.Clone(sub.dead[:min(max(limit, 0), len(sub.dead))])
	for i := range letters {
		letters[i].Message = clone(letters[i].Message)
	}
	return letters, nil
}

// RetryDeadLetters implements penstock.Store.
func (s *Store) RetryDeadLetters(ctx context.Context, name, subscription string, seqs ...int64) (int, error) {
	o, err := s.enterOutbox(ctx, name)
	if err != nil {
		return 0, err
	}
	defer s.db.Unlock()
	sub := o.subs[subscription]
	if sub == nil {
		return 0, nil
	}
	before := len(sub.dead)
	sub.dead = slices.DeleteFunc(sub.dead, func(d penstock.DeadLetter) bool {
		if !slices.Contains(seqs, d.Message.Seq) {
			return false
		}
		d.Message.Attempt++
		sub.retries = append(sub.retries, d.Message)
		return true
	})
	return before - len(sub.dead), nil
}

// clone keeps what is stored apart from what callers hold.
func clone(m penstock.Message) penstock.Message {
	m.Payload = slices.Clone(m.Payload)
	if len(m.Headers) == 0 {
		m.Headers = nil
	}
	m.Headers = maps.Clone(m.Headers)
	return m
}
