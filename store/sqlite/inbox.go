package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/inorder"
	"github.com/penstock/penstock/internal/shell"
)

// Inbox is one consumer's inbox. It holds no connection: the transaction is the
// caller's, BEGIN IMMEDIATE as for Outbox.PublishTx, and what it writes takes effect once if
// it goes on only with what is new. Safe for concurrent use.
type Inbox struct{ consumer string }

// Inbox names a consumer's inbox; it does not look whether there is one.
func (s *Store) Inbox(consumer string) *Inbox { return &Inbox{consumer} }

// forgetAtOnce bounds how many ids one call forgets that are out of their window: twice
// what it remembers, so that it keeps up.
const forgetAtOnce = 2

// First notes a message's id within tx and says whether it is new: false means that
// it has been received before, within the inbox's window. Roll tx back and it is new
// again. Errors: *penstock.FieldError, ErrNoInbox.
func (i *Inbox) First(ctx context.Context, tx Tx, id string) (bool, error) {
	fresh, err := i.FirstOf(ctx, tx, id)
	return len(fresh) == 1, err
}

// FirstOf is First for many ids. It returns those that are new, in the order given,
// each once.
func (i *Inbox) FirstOf(ctx context.Context, tx Tx, ids ...string) ([]string, error) {
	for _, id := range ids {
		if err := penstock.ValidateReceived(&penstock.Message{ID: id}); err != nil {
			return nil, err
		}
	}
	box, err := i.find(ctx, tx)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	return box.see(ctx, tx, ids)
}

// InOrder notes a message that has a key and returns what may be processed now, within
// tx and in this order: nothing if m is a duplicate, or if the message named by its
// header penstock-previous has not come; then m is held back, and it can be
// acknowledged once tx has committed. Otherwise m, and what was held back for it. Nothing is
// held for longer than wait, if Due is called now and then.
func (i *Inbox) InOrder(ctx context.Context, tx Tx, m penstock.Message, wait time.Duration) ([]penstock.Released, error) {
	if err := penstock.ValidateReceived(&m); err != nil {
		return nil, err
	}
	box, err := i.find(ctx, tx)
	if err != nil {
		return nil, err
	}
	if wait < 0 || wait > box.keep/2 {
		return nil, &penstock.FieldError{Field: "wait", Problem: fmt.Sprintf("is %s", wait), Hint: "give up to half of what the inbox keeps"}
	}
	if fresh, err := box.see(ctx, tx, []string{m.ID}); err != nil || len(fresh) == 0 {
		return nil, err
	}
	r := penstock.Released{Message: penstock.Message{ID: m.ID, Key: m.Key, Headers: m.Headers, Payload: m.Payload}}
	if m.Key == "" {
		return []penstock.Released{r}, nil
	}
	previous := m.Headers[penstock.HeaderPrevious]
	var instead *string
	var received, held, missing bool
	if err := tx.QueryRowContext(ctx, inboxStateSQL, box.id, m.ID, previous).Scan(&instead, &received, &held, &missing); err != nil {
		return nil, err
	}
	if previous != "" && (!received || held) {
		if received || !missing {
			now := time.Now()
			_, err := tx.ExecContext(ctx, `insert into penstock_held (inbox_id, id, previous, key, at, due, headers, payload) values (?, ?, ?, ?, ?, ?, ?, ?)`,
				box.id, m.ID, previous, m.Key, now.UnixMicro(), now.Add(wait).UnixMicro(), encodeHeaders(m.Headers), orEmpty(m.Payload))
			return nil, err
		}
		r.Gap, r.Missing = true, previous
	}
	return box.release(ctx, tx, follower{r, previous, instead})
}

// Due returns messages that have waited in vain for the one before them: of up to n
// keys the message after the gap, with Gap and Missing set, and what follows it.
func (i *Inbox) Due(ctx context.Context, tx Tx, n int) ([]penstock.Released, error) {
	return i.due(ctx, tx, n, []string{})
}

func (i *Inbox) due(ctx context.Context, tx Tx, n int, passingOver []string) ([]penstock.Released, error) {
	if n < 1 || n > 1000 {
		return nil, &penstock.FieldError{Field: "n", Problem: fmt.Sprintf("is %d", n), Hint: "use 1 to 1000, and call Due again for more"}
	}
	box, err := i.find(ctx, tx)
	if err != nil {
		return nil, err
	}
	keys, err := json.Marshal(passingOver)
	if err != nil {
		return nil, err
	}
	var all []penstock.Released
	for range n {
		var (
			r        penstock.Released
			previous string
			text     sql.NullString
		)
		err := tx.QueryRowContext(ctx, inboxDueSQL, box.id, time.Now().UnixMicro(), string(keys)).Scan(&r.ID, &r.Key, &text, &r.Payload, &previous)
		if errors.Is(err, sql.ErrNoRows) {
			break
		}
		if err != nil {
			return nil, err
		}
		r.Headers = headers(text.String)
		var instead *string
		var received, held, missing bool
		if err := tx.QueryRowContext(ctx, inboxStateSQL, box.id, r.ID, previous).Scan(&instead, &received, &held, &missing); err != nil {
			return nil, err
		}
		if !received {
			r.Gap, r.Missing = true, previous
			if err := box.report(ctx, tx, previous, r.Key, r.ID, false); err != nil {
				return nil, err
			}
		}
		if _, err := tx.ExecContext(ctx, `delete from penstock_held where inbox_id = ? and id = ?`, box.id, r.ID); err != nil {
			return nil, err
		}
		released, err := box.release(ctx, tx, follower{r, previous, instead})
		if err != nil {
			return nil, err
		}
		all = append(all, released...)
	}
	return all, nil
}

// inboxRow is one row of penstock_inboxes.
type inboxRow struct {
	id   int64
	keep time.Duration
}

func (i *Inbox) find(ctx context.Context, q querier) (row inboxRow, err error) {
	var keep int64
	err = q.QueryRowContext(ctx, `select id, keep from penstock_inboxes where consumer = ?`, i.consumer).Scan(&row.id, &keep)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return row, noInbox(i.consumer)
	case noSuchTable(err):
		return row, penstock.WithHint(fmt.Errorf("inbox of %q: %w", i.consumer, penstock.ErrNotMigrated), "run penstock migrate on this database file")
	}
	row.keep = time.Duration(keep) * time.Microsecond
	return row, err
}

// see notes ids and returns those that are new, and forgets some that are old.
func (b inboxRow) see(ctx context.Context, tx Tx, ids []string) ([]string, error) {
	now := time.Now()
	if _, err := tx.ExecContext(ctx, inboxForgetSQL, b.id, now.Add(-b.keep).UnixMicro(), forgetAtOnce*len(ids)); err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, inboxSeeSQL, b.id, array(ids), now.UnixMicro())
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var fresh []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		fresh = append(fresh, id)
	}
	return fresh, rows.Err()
}

// report notes a gap, before next or, as nothing has followed yet, "", and forgets some
// that are old.
func (b inboxRow) report(ctx context.Context, tx Tx, missing, key, next string, discarded bool) error {
	now := time.Now()
	if _, err := tx.ExecContext(ctx, inboxForgetGapsSQL, b.id, now.Add(-b.keep).UnixMicro(), forgetAtOnce); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, inboxGapSQL, b.id, missing, key, orNull(next), discarded, now.UnixMicro())
	return err
}

// follower is a message that can be handed over: the one that it follows, and what was handed
// over in its place if it was reported missing, "" if nothing was.
type follower struct {
	penstock.Released
	previous string
	instead  *string
}

// release takes out what was held for r, and what was held for that, and returns all of
// it in order, r first.
func (b inboxRow) release(ctx context.Context, tx Tx, r follower) (released []penstock.Released, err error) {
	held, err := b.held(ctx, tx, r.ID)
	if err != nil {
		return nil, err
	}
	if len(held) > 0 {
		ids := make([]string, len(held))
		for i := range held {
			ids[i] = held[i].ID
		}
		if _, err := tx.ExecContext(ctx, `delete from penstock_held where inbox_id = ? and id in (select value from json_each(?))`, b.id, array(ids)); err != nil {
			return nil, err
		}
	}
	var head, behind string
	err = tx.QueryRowContext(ctx, `select id, coalesce(behind, '') from penstock_heads where inbox_id = ? and key = ?`, b.id, r.Key).Scan(&head, &behind)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	was, err := inorder.Read(head, behind)
	if err != nil {
		return nil, err
	}
	parts := was
	for _, f := range append([]follower{r}, held...) {
		parts = parts.HandOver(&f.Released, f.previous, f.instead)
		released = append(released, f.Released)
	}
	if slices.Equal(parts, was) {
		return released, nil
	}
	now := time.Now()
	if _, err := tx.ExecContext(ctx, inboxForgetHeadsSQL, b.id, now.Add(-b.keep).UnixMicro(), forgetAtOnce); err != nil {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, `insert into penstock_heads (inbox_id, key, id, behind, at) values (?, ?, ?, ?, ?)
		on conflict (inbox_id, key) do update set id = excluded.id, behind = excluded.behind, at = excluded.at`, b.id, r.Key, parts.Head(), parts.Behind(), now.UnixMicro())
	return released, err
}

// held reads what is held for an id, and for that, in order.
func (b inboxRow) held(ctx context.Context, tx Tx, id string) (held []follower, err error) {
	rows, err := tx.QueryContext(ctx, inboxFollowSQL, b.id, id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var next follower
		var text sql.NullString
		if err := rows.Scan(&next.ID, &next.Key, &text, &next.Payload, &next.previous, &next.instead); err != nil {
			return nil, err
		}
		next.Headers = headers(text.String)
		held = append(held, next)
	}
	return held, rows.Err()
}

func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{} // nil would be NULL
	}
	return b
}

// noInbox is the error for a consumer without one.
func noInbox(consumer string) error {
	return penstock.WithHint(fmt.Errorf("%w: of %q", penstock.ErrNoInbox, consumer), "create it with: penstock inbox create %s", shell.Word(consumer))
}
