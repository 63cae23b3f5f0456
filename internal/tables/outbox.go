package tables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/messageid"
)

// OutboxDB has the further methods that outboxes need of their store.
type OutboxDB interface {
	DB
	// NewTable is an error if nothing new of a kind can have the name, or something has it. No other transaction makes one until this one
	// ends.
	NewTable(ctx context.Context, tx Tx, kind, name string) error
	// MakeMessages makes the table of an outbox's messages anew: an existing one is left from a process that died on the way. tx is for a dialect whose
	// transactions define tables.
	MakeMessages(ctx context.Context, tx Tx, outbox string) error
	DropMessages(ctx context.Context, tx Tx, outbox string) error
	// Words are inserted into the statements about an outbox's messages: {table}, and how a row is found, is known and comes in order.
	Words(outbox string) map[string]SQL
	// MessagesBytes is its size with its indexes, or 0 if that is not known.
	MessagesBytes(ctx context.Context, outbox string) (int64, error)
	// Looks has the store's options that Maintain needs.
	Looks() Options
	// NewBuckets is how many a new outbox has.
	NewBuckets() int
	// PerSubscription are the tables that have rows of subscriptions.
	PerSubscription() []string
}

// Outboxes is the part of a driver.Store and driver.Operator that is the same in every dialect.
type Outboxes struct {
	on        OutboxDB
	folded    sync.Map // folded by subscription
	reclaimed sync.Map // *Passed by outbox
	find      func(ctx context.Context, on Runner, name, lock string) (Outbox, error)
}

// NewOutboxes are those of a store.
func NewOutboxes(on OutboxDB) *Outboxes {
	return &Outboxes{on: on, find: func(ctx context.Context, via Runner, name, lock string) (Outbox, error) {
		return FindOutbox(ctx, on, via, name, lock)
	}}
}

// Outbox is one row of the outboxes.
type Outbox struct {
	ID        int64
	Name      string
	IDs       messageid.Outbox
	Buckets   int
	Retention admin.Retention
	Words     map[string]SQL
	Adopted   *Adoption // of a table that Penstock did not create
	// DistributedBy is the column by which a cluster distributes the messages, if it does. Flight.RowID has its value. Nothing is kept once it is
	// settled.
	DistributedBy string
}

// Distributing is a dialect that can distribute messages.
type Distributing interface {
	// Distribution sets DistributedBy, and adds words, if an outbox is distributed.
	Distribution(ctx context.Context, on Runner, box *Outbox) error
}

// Args of a statement about the outbox.
func (box *Outbox) Args(more Args) Args {
	a := make(Args, 1+len(box.Words)+len(more)+3) // and those of a reader
	a["outbox"] = box.ID
	for name, text := range box.Words {
		a[name] = text
	}
	maps.Copy(a, more)
	return a
}

// After is the place behind which rows are read: a time, or of an adopted table's number a number.
func (box *Outbox) After(place time.Time) any {
	switch {
	case box.Adopted == nil || !box.Adopted.numbers:
		return place.UTC()
	case place.IsZero():
		return int64(math.MinInt64)
	}
	return place.UnixMicro()
}

// FindOutbox reads an outbox's row, and locks it if lock is "for update".
func FindOutbox(ctx context.Context, db OutboxDB, on Runner, name, lock string) (Outbox, error) {
	box := Outbox{Name: name, Words: db.Words(name)}
	var age int64
	there := false
	b := new(Batch).Row(&there, "select id, uid, buckets, keep_age, keep_bytes from {schema}.outboxes where name = {name} "+lock, Args{"name": name},
		&box.ID, &box.IDs.UID, &box.Buckets, &age, &box.Retention.Bytes)
	err := on.Run(ctx, b)
	box.Retention.Age = time.Duration(age)
	if err == nil && !there {
		err = NoOutbox(name)
	}
	if may, is := db.(Distributing); is && err == nil {
		err = may.Distribution(ctx, on, &box)
	}
	return box, err
}

// keepsNothing is an error if an outbox is distributed, for calls that need settled messages.
func (box *Outbox) keepsNothing(what string) error {
	if box.DistributedBy == "" {
		return nil
	}
	return penstock.WithHint(fmt.Errorf("outbox %q is distributed by %s: %s", box.Name, box.DistributedBy, what), "use an outbox that is not distributed for this")
}

// CreateOutbox implements driver.Store. The row is locked while the table is made, by another connection: DDL is in no transaction.
func (s *Outboxes) CreateOutbox(ctx context.Context, name string) error {
	if err := penstock.ValidateOutboxName(name); err != nil {
		return err
	}
	return s.on.Within(ctx, func(tx Tx) error {
		if err := s.on.NewTable(ctx, tx, "outbox", name); err != nil {
			return err
		}
		b := new(Batch).Do("patient", nil)
		b.Do("insert into {schema}.outboxes (name, uid, buckets) values ({name}, {uid}, {count})", Args{"name": name, "uid": messageid.NewUID(), "count": s.on.NewBuckets()})
		if err := tx.Run(ctx, b); err != nil {
			return err
		}
		return s.on.MakeMessages(ctx, tx, name)
	})
}

// DropOutbox implements driver.Store.
func (s *Outboxes) DropOutbox(ctx context.Context, name string) error {
	return s.on.Within(ctx, func(tx Tx) error {
		box, err := s.find(ctx, tx, name, "for update")
		if err != nil {
			return err
		}
		b := new(Batch).Do("patient", nil)
		s.dropSubscriptions(b, &box)
		b.Do("delete from {schema}.outboxes where id = {outbox}", box.Args(nil))
		if err := tx.Run(ctx, b); err != nil {
			return err
		}
		return s.on.DropMessages(ctx, tx, name)
	})
}

// dropSubscriptions deletes all that an outbox has.
func (s *Outboxes) dropSubscriptions(b *Batch, box *Outbox) {
	lockSubscriptions(b, box)
	for _, table := range s.on.PerSubscription() {
		b.Do("delete from {schema}."+table+" where subscription_id in (select id from {schema}.subscriptions where outbox_id = {outbox})", box.Args(nil))
	}
	b.Do("delete from {schema}.subscriptions where outbox_id = {outbox}", box.Args(nil))
}

// lockSubscriptions waits for readers that settle, and makes others wait.
func lockSubscriptions(b *Batch, box *Outbox) (ids *[]int64) {
	ids = new([]int64)
	b.Rows(All(ids), "select id from {schema}.subscriptions where outbox_id = {outbox} order by id for update", box.Args(nil))
	return ids
}

// keepSettled decides anew whether settled messages are noted or deleted. A Settle has its subscription's row locked: it is one or the other for all
// of it.
func keepSettled(b *Batch, box *Outbox) {
	lockSubscriptions(b, box)
	b.Do(`update {schema}.subscriptions set keeps_settled = (select c.n from (select count(*) as n from {schema}.subscriptions where outbox_id = {outbox}) c) > 1
		or exists (select 1 from {schema}.outboxes where id = {outbox} and (keep_age <> 0 or keep_bytes <> 0)) where outbox_id = {outbox}`, box.Args(nil))
}

// SetRetention implements driver.Operator.
func (s *Outboxes) SetRetention(ctx context.Context, outbox string, r admin.Retention) error {
	if err := r.Validate(); err != nil {
		return err
	}
	return s.on.Within(ctx, func(tx Tx) error {
		box, err := s.find(ctx, tx, outbox, "for update")
		if err != nil {
			return err
		}
		if err := box.keepsNothing("it keeps no settled messages"); err != nil && r != (admin.Retention{}) {
			return err
		}
		b := new(Batch).Do("update {schema}.outboxes set keep_age = {age}, keep_bytes = {bytes} where id = {outbox}", box.Args(Args{"age": int64(r.Age), "bytes": r.Bytes}))
		keepSettled(b, &box)
		return tx.Finish(ctx, b)
	})
}

// Status implements driver.Store.
func (s *Outboxes) Status(ctx context.Context) ([]admin.OutboxStatus, error) {
	return StatusUpTo(ctx, s, 0)
}

// StatusUpTo is driver.StatusCounter for a dialect whose statement counts up to {most}, except for backlogs; 0 means
// without a limit.
func StatusUpTo(ctx context.Context, s *Outboxes, most int) ([]admin.OutboxStatus, error) {
	found, err := names(ctx, s.on, "outboxes")
	if err != nil {
		return nil, err
	}
	all := []admin.OutboxStatus{}
	for _, name := range found {
		st, err := s.status(ctx, most, name)
		switch {
		case s.on.Missing(err) || errors.Is(err, penstock.ErrNoOutbox): // dropped meanwhile
		case err != nil:
			return nil, err
		default:
			all = append(all, st)
		}
	}
	return all, nil
}

func (s *Outboxes) status(ctx context.Context, most int, name string) (admin.OutboxStatus, error) {
	box, err := s.find(ctx, s.on, name, "")
	st := admin.OutboxStatus{Outbox: name, Retention: box.Retention, Subscriptions: []admin.SubscriptionStatus{}}
	if err != nil {
		return st, err
	}
	if box.Adopted == nil {
		if st.Bytes, err = s.on.MessagesBytes(ctx, name); err != nil {
			return st, err
		}
	}
	args := box.Args(Args{"most": cmp.Or(most, -1)})
	if box.DistributedBy != "" { // its statement cannot ask for anything else
		var waiting int64
		var since *time.Time
		if err := s.on.Run(ctx, new(Batch).Row(new(bool), "waiting", args, &waiting, &since)); err != nil {
			return st, err
		}
		args["waiting"], args["waiting_since"] = waiting, since
	}
	err = s.on.Run(ctx, new(Batch).Rows(func(scan Scan) error {
		var (
			sub                         admin.SubscriptionStatus
			leased                      bool
			since, down, oldest, parked *time.Time
			until, now                  time.Time
			why                         string
		)
		err := scan(new(int64), &sub.Subscription, &sub.Settled, &sub.Rate, &leased, &sub.Holder, &since, &sub.Epoch, &until, &down, &why,
			&sub.DeadLetters, &sub.Parked, &sub.ParkedKeys, &sub.HeldKeys, &parked, &sub.Replaying, &sub.Backlog, &oldest, &now)
		if leased {
			sub.HolderSince, sub.LeaseUntil = timeOf(since), until.UTC()
			if down != nil {
				sub.SinkDown, sub.SinkError = down.UTC(), why
			}
		} else {
			sub.Holder = ""
		}
		if oldest != nil {
			sub.OldestAge = max(now.Sub(*oldest), 1)
		}
		if parked != nil {
			sub.ParkedAge = max(now.Sub(*parked), 1)
		}
		backlog := sub.Backlog
		sub.Cap(int64(most))
		sub.Backlog, sub.AtLeast = backlog, slices.DeleteFunc(sub.AtLeast, func(name string) bool { return name == "backlog" })
		st.Subscriptions = append(st.Subscriptions, sub)
		return err
	}, "status", args))
	if err != nil || len(st.Subscriptions) > 0 || box.Adopted != nil {
		return st, err
	}
	var (
		first *time.Time
		now   time.Time
	)
	if err = s.on.Run(ctx, new(Batch).Row(new(bool), "unread", args, &first, &now)); first != nil {
		st.UnreadAge = max(now.Sub(*first), 1)
	}
	return st, err
}
