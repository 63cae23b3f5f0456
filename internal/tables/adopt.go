package tables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/descriptor"
)

// AdoptDB has the further methods that adopted tables need of their store.
type AdoptDB interface {
	OutboxDB
	AdoptDialect
	// LookAt describes a table, of which the names are given; nil if there is none.
	LookAt(ctx context.Context, names []string) (*Relation, error)
	// Source makes a reader in the dialect.
	Source(req driver.Subscribe) (AdoptedSource, *Reader)
}

// AdoptedSource is a reader of an outbox's messages, or an adopted table's rows.
type AdoptedSource interface {
	driver.Source
	driver.SinkReporter
}

// Adopted is a table that Penstock did not create, and the subscription that reads it. Its rows are read as the messages of an outbox are:
// in the statements a select from the table stands for the outbox's table. Safe for concurrent use.
type Adopted struct {
	rows   *Outboxes
	on     AdoptDB
	name   string
	config adopted.Config
	close  func() error
}

// Adoption is how the rows of one reader become messages.
type Adoption struct {
	numbers bool     // they are in order of a number, whose place is that number of microseconds after 1970
	headers []string // of templates, in order
	Settles string   // the statement that settles rows

	last int64 // number of a message

	mu    sync.Mutex
	heads []head // of numbers
}

// head is how far a reader had come, and when.
type head struct {
	at    time.Time
	place time.Time
}

// mark returns the low-water mark: a margin behind the newest row that was read. Of numbers it is that row's number a margin ago. A time that
// is to come, of a clock that is wrong, moves it no further than the present.
func (a *Adoption) mark(low time.Time, margin time.Duration) time.Time {
	now := time.Now()
	if !a.numbers {
		if low.IsZero() {
			return low
		}
		if low.After(now) {
			low = now
		}
		return low.Add(-margin)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.heads); !low.IsZero() && (n == 0 || low.After(a.heads[n-1].place)) {
		if n > 1 && a.heads[n-1].at.Sub(a.heads[n-2].at) < margin/16 {
			a.heads = a.heads[:n-1]
		}
		a.heads = append(a.heads, head{now, low})
	}
	var old time.Time
	for len(a.heads) > 0 && now.Sub(a.heads[0].at) >= margin {
		old, a.heads = a.heads[0].place, a.heads[1:]
	}
	return old
}

// NewAdopted is a table of the store, which close closes, now if the config cannot be used here. It does not connect.
func NewAdopted(on AdoptDB, subscription string, c adopted.Config, closes func() error) (*Adopted, error) {
	if err := usable(subscription, &c); err != nil {
		_ = closes()
		return nil, err
	}
	t := &Adopted{on: on, name: subscription, config: c, close: closes}
	t.rows = &Outboxes{on: on, find: func(ctx context.Context, via Runner, _, lock string) (Outbox, error) {
		box, err := t.look(ctx)
		if err != nil {
			return Outbox{}, err
		}
		box.ID, _, err = findAdopted(ctx, via, t.name, lock)
		return *box, err
	}}
	return t, nil
}

// usable reports whether a table can be adopted in this way, without looking at it.
func usable(subscription string, c *adopted.Config) error {
	if err := c.Prepare(subscription); err != nil {
		return err
	}
	switch {
	case !c.Ordered():
		return adopted.Field("workers", fmt.Sprintf("is %d", c.Workers), "leave it out: on this database one reader at a time reads an adopted table, in order")
	case c.Delivered == adopted.Archive:
		return adopted.Field("delivered", "is archive, which this database does not offer", "choose %s, %s or %s, and move rows yourself", adopted.Delete, adopted.Mark, adopted.SetStatus)
	}
	return nil
}

// Close closes the store.
func (t *Adopted) Close() error { return t.close() }

// findAdopted finds a subscription's row, and locks it.
func findAdopted(ctx context.Context, via Runner, name, lock string) (outbox int64, source string, err error) {
	there := false
	b := new(Batch).Row(&there, "select id, source from {schema}.adopted where subscription = {name} "+lock, Args{"name": name}, &outbox, &source)
	if err = via.Run(ctx, b); err == nil && !there {
		err = penstock.WithHint(fmt.Errorf("%w: %q has not run yet", penstock.ErrNoSubscription, name), "start its relay")
	}
	return -outbox, source, err
}

// look compares the description with the table.
func (t *Adopted) look(ctx context.Context) (*Outbox, error) {
	if err := t.on.Ready(ctx); err != nil {
		return nil, err
	}
	m, err := t.compare(ctx)
	if err != nil {
		return nil, err
	}
	return &Outbox{Name: t.config.Table, Buckets: 1, Words: m.words(), Adopted: &Adoption{numbers: m.order.Kind == adopted.Number, headers: m.parts.HeaderNames, Settles: m.settles()}}, nil
}

// Check compares the description with the table: a *penstock.FieldError names the part that does not fit.
func (t *Adopted) Check(ctx context.Context) error {
	_, err := t.look(ctx)
	return err
}

// Subscribe compares the description with the table, as Check does, and takes the lease: a *penstock.HeldError if another holder has it.
func (t *Adopted) Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error) {
	if req.Start != driver.FromBeginning || req.Ephemeral {
		return nil, adopted.Field("start", "is not the beginning", "an adopted table has no other: mark or delete the rows that must not be delivered")
	}
	req.Outbox, req.Subscription, req.Lease = t.config.Table, t.name, cmp.Or(req.Lease, driver.DefaultLease)
	box, err := t.look(ctx)
	if err != nil {
		return nil, err
	}
	src, reader := t.on.Source(req)
	reader.Box = *box
	if err := t.on.Within(ctx, func(tx Tx) error { return t.attach(ctx, tx, reader) }); err != nil {
		return nil, err
	}
	reader.Box.Adopted.last = reader.Epoch << 40
	return &adoptedReader{AdoptedSource: src, reader: reader, of: t, kept: time.Now()}, nil
}

// attach takes the lease, of a subscription that it makes if there is none.
func (t *Adopted) attach(ctx context.Context, tx Tx, r *Reader) (err error) {
	b := new(Batch).Lock(LockNames, nil) // one at a time, so that two that would share rows see each other
	if err := tx.Run(ctx, b); err != nil {
		return err
	}
	source := string(r.Box.Words["source"])
	if err := t.conflict(ctx, tx, source); err != nil {
		return err
	}
	_, was, err := findAdopted(ctx, tx, t.name, "for update")
	args := Args{"name": t.name, "source": source, "mark": t.config.Marks()}
	b = &Batch{}
	switch {
	case errors.Is(err, penstock.ErrNoSubscription):
		b.Do("insert into {schema}.adopted (subscription, source, mark) values ({name}, {source}, {mark})", args)
		b.Do("insert into {schema}.subscriptions (outbox_id, name, keeps_settled) select -id, {name}, false from {schema}.adopted where subscription = {name}", args)
	case err != nil:
		return err
	default:
		b.Do("update {schema}.adopted set source = {source}, mark = {mark} where subscription = {name}", args)
		if was == source {
			break
		}
		if err := t.moves(ctx, tx, was, source); err != nil {
			return err
		}
		b.Do("update {schema}.subscriptions set low = '1970-01-01 00:00:00' where outbox_id in (select -id from {schema}.adopted where subscription = {name})", args)
	}
	if err := tx.Run(ctx, b); err != nil {
		return err
	}
	if r.Box.ID, _, err = findAdopted(ctx, tx, t.name, ""); err != nil {
		return err
	}
	if _, err := r.free(ctx, tx, ""); err != nil {
		return err
	}
	return r.Take(ctx, tx)
}

// conflict is an error if another subscription takes away or marks the same rows.
func (t *Adopted) conflict(ctx context.Context, tx Tx, source string) error {
	there := false
	var name, mark string
	b := new(Batch).Row(&there, "select subscription, mark from {schema}.adopted where source = {source} and subscription <> {name} and (mark = {mark} or mark = '' or {mark} = '') order by id limit 1",
		Args{"source": source, "name": t.name, "mark": t.config.Marks()}, &name, &mark)
	err := tx.Run(ctx, b)
	if err != nil || !there {
		return err
	}
	return t.config.Shares(source, name, mark)
}

// moves is an error if a subscription that is to read another table knows of rows of the one before.
func (t *Adopted) moves(ctx context.Context, tx Tx, was, source string) error {
	known := false
	b := new(Batch).Rows(func(scan Scan) error { known = true; return scan(new(int64)) },
		"select e.seq from {schema}.entries e join {schema}.subscriptions s on s.id = e.subscription_id join {schema}.adopted a on a.id = -s.outbox_id where a.subscription = {name} limit 1",
		Args{"name": t.name})
	if err := tx.Run(ctx, b); err != nil || !known {
		return err
	}
	return adopted.Moves(t.name, was, source)
}

// Status describes the subscription.
func (t *Adopted) Status(ctx context.Context) (admin.SubscriptionStatus, error) {
	st, err := t.rows.status(ctx, 0, t.name)
	if errors.Is(err, penstock.ErrNoSubscription) {
		return t.backlog(ctx)
	}
	if err != nil || len(st.Subscriptions) == 0 {
		return admin.SubscriptionStatus{Subscription: t.name}, err
	}
	return st.Subscriptions[0], nil
}

// backlog is the status before a relay has run: all rows that wait.
func (t *Adopted) backlog(ctx context.Context) (admin.SubscriptionStatus, error) {
	st := admin.SubscriptionStatus{Subscription: t.name}
	box, err := t.look(ctx)
	if err != nil {
		return st, err
	}
	var oldest *time.Time
	var now time.Time
	b := new(Batch).Rows(func(scan Scan) error { return scan(&st.Backlog, &oldest, &now) }, "select count(*), min({oldest}), {clock} from {table} t", box.Args(nil))
	err = t.on.Run(ctx, b)
	if oldest != nil {
		st.OldestAge = max(now.Sub(*oldest), 1)
	}
	return st, err
}

// ParkedKeys describes up to limit parked keys, those due soonest first, held ones last.
func (t *Adopted) ParkedKeys(ctx context.Context, limit int) ([]admin.ParkedKey, error) {
	return t.rows.ParkedKeys(ctx, "", t.name, limit)
}

// RetryParked has parked rows tried at once: those of the keys, or all without one.
func (t *Adopted) RetryParked(ctx context.Context, keys ...string) (int, error) {
	return t.rows.RetryParked(ctx, "", t.name, keys...)
}

// DeadLetters are those that q describes; its names are not looked at.
func (t *Adopted) DeadLetters(ctx context.Context, q admin.DeadLetterQuery) ([]admin.DeadLetter, error) {
	q.Subscription = t.name
	return t.rows.DeadLetters(ctx, q)
}

// RetryDeadLetters sends them again.
func (t *Adopted) RetryDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error) {
	q.Subscription = t.name
	return t.rows.RetryDeadLetters(ctx, q)
}

// DiscardDeadLetters settles their rows as if they had been delivered.
func (t *Adopted) DiscardDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error) {
	q.Subscription = t.name
	return t.rows.DiscardDeadLetters(ctx, q)
}

// Drop removes the subscription with its low-water mark, parked rows and dead letters. The table and its rows stay as they are.
func (t *Adopted) Drop(ctx context.Context) error { return t.rows.DropAdoption(ctx, t.name) }

// DropAdoption forgets a subscription over an adopted table, of which nothing but the name needs to be known.
func (s *Outboxes) DropAdoption(ctx context.Context, subscription string) error {
	return s.on.Within(ctx, func(tx Tx) error {
		id, _, err := findAdopted(ctx, tx, subscription, "for update")
		if err != nil {
			return err
		}
		box := Outbox{ID: id}
		b := &Batch{}
		s.dropSubscriptions(b, &box)
		b.Do("delete from {schema}.adopted where id = {id}", box.Args(Args{"id": -id}))
		return tx.Finish(ctx, b)
	})
}

// Adoptions are the subscriptions over adopted tables, by name. Their status lacks the backlog.
func (s *Outboxes) Adoptions(ctx context.Context) (all []descriptor.Remembered, err error) {
	err = s.on.Run(ctx, new(Batch).Rows(func(scan Scan) error {
		var r descriptor.Remembered
		st := &r.Status
		var leased bool
		err := scan(&st.Subscription, &r.Table, &leased, &st.Holder, &st.LeaseUntil, &st.Epoch, &st.DeadLetters, &st.Parked)
		if !leased {
			st.Holder, st.LeaseUntil = "", time.Time{}
		}
		all = append(all, r)
		return err
	}, `select a.subscription, a.source, s.lease_until > {clock}, s.holder, s.lease_until, s.epoch,
		(select count(*) from {schema}.entries e where e.subscription_id = s.id and e.state = 2),
		(select count(*) from {schema}.entries e where e.subscription_id = s.id and e.state = 1)
		from {schema}.adopted a join {schema}.subscriptions s on s.outbox_id = -a.id order by a.subscription`, nil))
	slices.SortFunc(all, func(a, b descriptor.Remembered) int { return cmp.Compare(a.Status.Subscription, b.Status.Subscription) })
	return all, err
}
