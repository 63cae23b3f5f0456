package tables

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
)

// Inboxes is a driver.InboxStore in every dialect.
type Inboxes struct{ on InboxDB }

var _ driver.InboxStore = (*Inboxes)(nil)

// NewInboxes are those of a store.
func NewInboxes(on InboxDB) *Inboxes { return &Inboxes{on} }

// CreateInbox implements driver.InboxStore.
func (s *Inboxes) CreateInbox(ctx context.Context, consumer string, keep time.Duration) error {
	if err := penstock.ValidateConsumer(consumer); err != nil {
		return err
	}
	if keep == 0 {
		keep = penstock.DefaultInboxKeep
	}
	if err := penstock.ValidateInboxKeep(keep); err != nil {
		return err
	}
	err := s.on.Within(ctx, func(tx Tx) error {
		box := &InboxRow{Consumer: consumer}
		b := new(Batch).Do("inbox_create", box.Args(Args{"keep": keep.Microseconds()}))
		b.Row(new(bool), "select id from {schema}.inboxes where consumer = {consumer}", box.Args(nil), &box.ID)
		if err := tx.Run(ctx, b); err != nil || !s.on.Turns() {
			return err
		}
		turns := make([]string, Turns)
		for n := range turns {
			turns[n] = fmt.Sprintf("(%d, %d)", box.ID, n)
		}
		b = new(Batch).Do("insert into {schema}.turns (inbox_id, turn) values {values}", Args{"values": SQL(strings.Join(turns, ", "))})
		return tx.Finish(ctx, b)
	})
	if s.on.Duplicate(err) {
		return fmt.Errorf("%w: of %q", penstock.ErrInboxExists, consumer)
	}
	return err
}

// SetInbox implements driver.InboxStore.
func (s *Inboxes) SetInbox(ctx context.Context, consumer string, keep time.Duration) error {
	if err := penstock.ValidateInboxKeep(keep); err != nil {
		return err
	}
	return s.in(ctx, consumer, func(tx Tx, box *InboxRow) error {
		b := new(Batch).Do("update {schema}.inboxes set keep = {keep} where id = {inbox}", box.Args(Args{"keep": keep.Microseconds()}))
		return tx.Finish(ctx, b)
	})
}

// DropInbox implements driver.InboxStore.
func (s *Inboxes) DropInbox(ctx context.Context, consumer string) error {
	return s.in(ctx, consumer, func(tx Tx, box *InboxRow) error {
		b := &Batch{}
		if s.on.Turns() {
			b.Do("delete from {schema}.turns where inbox_id = {inbox}", box.Args(nil))
		}
		for _, table := range []string{"received", "gaps", "held", "key_heads"} {
			b.Do("delete from {schema}."+table+" where inbox_id = {inbox}", box.Args(nil))
		}
		b.Do("delete from {schema}.inboxes where id = {inbox}", box.Args(nil))
		return tx.Finish(ctx, b)
	})
}

// Inboxes implements driver.InboxStore. Inboxes share their tables, so Bytes is 0.
func (s *Inboxes) Inboxes(ctx context.Context) (all []admin.InboxStatus, err error) {
	return all, s.on.Run(ctx, new(Batch).Rows(func(scan Scan) error {
		var i admin.InboxStatus
		var keep int64
		var due *time.Time
		err := scan(&i.Consumer, &keep, &i.Held, &i.HeldBytes, &due, &i.Gaps)
		i.Keep, i.NextGap = time.Duration(keep)*time.Microsecond, timeOf(due)
		all = append(all, i)
		return err
	}, "inbox_status", nil))
}

// HeldMessages implements driver.InboxStore.
func (s *Inboxes) HeldMessages(ctx context.Context, q admin.HeldQuery) (all []admin.HeldMessage, err error) {
	q.SetDefaults()
	if err := admin.ValidateLimit(q.Limit); err != nil {
		return nil, err
	}
	box, err := s.find(ctx, s.on, q.Consumer, "")
	if err != nil {
		return nil, err
	}
	return all, s.on.Run(ctx, new(Batch).Rows(func(scan Scan) error {
		var m admin.HeldMessage
		var headers []byte
		if err := scan(&m.ID, &m.Key, &headers, &m.PayloadBytes, &m.Payload, &m.Previous, &m.PreviousHeld, &m.At, &m.Due); err != nil {
			return err
		}
		m.At, m.Due = m.At.UTC(), m.Due.UTC()
		all = append(all, m)
		all[len(all)-1].Headers = Headers(headers)
		return nil
	}, "inbox_held", chosenHeld(box, q, Args{"most": q.Limit})))
}

func chosenHeld(box *InboxRow, q admin.HeldQuery, more Args) Args {
	return box.Args(Args{"key": q.Key, "previous": q.Previous, "id": q.ID}.With(more))
}

// ReleaseHeld implements driver.InboxStore.
func (s *Inboxes) ReleaseHeld(ctx context.Context, q admin.HeldQuery) (n int64, err error) {
	err = s.in(ctx, q.Consumer, func(tx Tx, box *InboxRow) error {
		return tx.Finish(ctx, new(Batch).Counted(&n, "inbox_release", chosenHeld(box, q, nil)))
	})
	return n, err
}

// DiscardHeld implements driver.InboxStore. All turns are taken: other transactions that receive a
// message wait.
func (s *Inboxes) DiscardHeld(ctx context.Context, consumer string, ids ...string) (gone []string, err error) {
	err = s.in(ctx, consumer, func(tx Tx, box *InboxRow) error {
		gone = nil
		for turn := range Turns {
			b := &Batch{}
			s.on.Turn(b, box, turn)
			if err := tx.Run(ctx, b); err != nil {
				return err
			}
		}
		for _, id := range ids {
			there, key, of := false, "", box.Args(Args{"id": id})
			if err := tx.Run(ctx, new(Batch).Row(&there, "inbox_held_key", of, &key)); err != nil {
				return err
			}
			if !there {
				continue
			}
			b := &Batch{}
			for _, table := range []string{"held", "received"} {
				b.Do("delete from {schema}."+table+" where inbox_id = {inbox} and id = {id}", of)
			}
			noteGap(s.on, b, box, id, key, nil, true)
			b.Do("inbox_release", chosenHeld(box, admin.HeldQuery{Previous: id}, nil))
			if err := tx.Run(ctx, b); err != nil {
				return err
			}
			gone = append(gone, id)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return gone, nil
}

// InboxGaps implements driver.InboxStore.
func (s *Inboxes) InboxGaps(ctx context.Context, consumer string, limit int) (all []admin.InboxGap, err error) {
	if err := admin.ValidateLimit(limit); err != nil {
		return nil, err
	}
	box, err := s.find(ctx, s.on, consumer, "")
	if err != nil {
		return nil, err
	}
	return all, s.on.Run(ctx, new(Batch).Rows(func(scan Scan) error {
		var g admin.InboxGap
		err := scan(&g.Missing, &g.Key, &g.Next, &g.At, &g.Discarded, &g.Came)
		g.At = g.At.UTC()
		all = append(all, g)
		return err
	}, "inbox_gaps", box.Args(Args{"keep": box.keep.Microseconds(), "most": limit})))
}

func (s *Inboxes) find(ctx context.Context, on Runner, consumer, lock string) (*InboxRow, error) {
	box := &InboxRow{Consumer: consumer}
	var keep int64
	b := new(Batch).Row(&box.there, "select id, keep from {schema}.inboxes where consumer = {consumer} "+lock, box.Args(nil), &box.ID, &keep)
	if err := on.Run(ctx, b); err != nil {
		return nil, err
	}
	if !box.there {
		return nil, NoInbox(consumer)
	}
	box.keep = time.Duration(keep) * time.Microsecond
	return box, nil
}

// in runs fn in a transaction that has locked the inbox's row.
func (s *Inboxes) in(ctx context.Context, consumer string, fn func(tx Tx, box *InboxRow) error) error {
	return s.on.Within(ctx, func(tx Tx) error {
		box, err := s.find(ctx, tx, consumer, "for update")
		if err != nil {
			return err
		}
		return fn(tx, box)
	})
}

// NotNil: nil would be NULL.
func NotNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
