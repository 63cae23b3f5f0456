package adopt

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/pg"
)

// The operators' methods are those of driver.Operator, for the table's one subscription; the names in
// queries are not looked at. A subscription that no relay has run yet is
// penstock.ErrNoSubscription.

// deadLetter is a dead letter with its names in Penstock's table.
type deadLetter struct {
	id, parkedKey string
	admin.DeadLetter
}

func (l deadLetter) rowID() string { return l.id }

func (t *Table) deadLetters(ctx context.Context, q querier, id int64, query admin.DeadLetterQuery, lock string) ([]deadLetter, error) {
	rows, _ := q.Query(ctx, t.own("dead_letters")+lock, id, query.Seqs, query.IDs, zeronull.Text(query.Key), zeronull.Text(query.Topic), zeronull.Text(query.Error),
		zeronull.Timestamptz(query.DiedBefore), zeronull.Timestamptz(query.DiedAfter), query.AfterSeq, zeronull.Int8(max(0, query.Limit)))
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (l deadLetter, err error) {
		var failures []byte
		m := &l.Message
		if err := row.Scan(&l.id, &l.parkedKey, &m.Seq, &m.ID, &m.Key, &m.Topic, &m.Attempt, &failures, (*zeronull.Timestamptz)(&m.FailedSince), &l.At, &l.Held); err != nil {
			return l, err
		}
		m.FailedSince, l.At = m.FailedSince.UTC(), l.At.UTC()
		var h pg.History
		h.Parse(failures)
		l.Failures = h.Failures
		return l, nil
	})
}

// DeadLetters returns the dead letters that q describes, in order of Seq, with the
// content that their rows have now. Of a row that is gone only the part that Penstock
// remembers is there.
func (t *Table) DeadLetters(ctx context.Context, q admin.DeadLetterQuery) ([]admin.DeadLetter, error) {
	id, err := t.subscription(ctx)
	if err != nil {
		return nil, err
	}
	m, err := t.compare(ctx)
	if err != nil {
		return nil, err
	}
	found, err := t.deadLetters(ctx, t.pool, id, q, "")
	if err != nil {
		return nil, t.explain(err)
	}
	s := &Source{t: t, m: m, st: newStatements(m, t.schema)}
	rows, err := s.load(ctx, t.pool, idsOf(found))
	if err != nil {
		return nil, t.explain(err)
	}
	all := make([]admin.DeadLetter, len(found))
	for i, l := range found {
		if r, there := rows[l.id]; there {
			l.Message.Headers, l.Message.Payload, l.Message.CreatedAt = r.message.Headers, r.message.Payload, r.message.CreatedAt
		}
		all[i] = l.DeadLetter
	}
	return all, nil
}

// RetryDeadLetters sends dead letters again, OutOfOrder and with the next attempt. It
// returns how many there were.
func (t *Table) RetryDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (n int, err error) {
	return t.change(ctx, q, func(b *pgx.Batch, id int64, ids, _ []string) {
		b.Queue("update "+t.ownName("_adopt_row")+" set retry = true where subscription = $1 and row_id = any ($2)", id, ids)
	})
}

// DiscardDeadLetters settles the rows of dead letters as if they had been delivered, but
// for their error, which stays. It returns how many there were.
func (t *Table) DiscardDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error) {
	m, err := t.compare(ctx)
	if err != nil {
		return 0, err
	}
	st := newStatements(m, t.schema)
	return t.change(ctx, q, func(b *pgx.Batch, id int64, ids, parkedKeys []string) {
		b.Queue(st.discard, m.keyArrays(ids)...)
		b.Queue(t.own("back"), id, ids)
		b.Queue("select "+t.ownName("_adopt_release")+"($1, $2)", id, parkedKeys)
	})
}

// change does something to chosen dead letters.
func (t *Table) change(ctx context.Context, q admin.DeadLetterQuery, f func(b *pgx.Batch, id int64, ids, parkedKeys []string)) (n int, err error) {
	err = t.alone(ctx, func(tx pgx.Tx, id int64) error {
		found, err := t.deadLetters(ctx, tx, id, q, " for update")
		if err != nil || len(found) == 0 {
			return err
		}
		var parkedKeys []string
		for _, l := range found {
			parkedKeys = append(parkedKeys, l.parkedKey)
		}
		n = len(found)
		var b pgx.Batch
		f(&b, id, idsOf(found), parkedKeys)
		return tx.SendBatch(ctx, &b).Close()
	})
	return n, err
}

// alone changes the subscription while no settling transaction is under way.
func (t *Table) alone(ctx context.Context, f func(tx pgx.Tx, id int64) error) error {
	id, err := t.subscription(ctx)
	if err != nil {
		return err
	}
	return t.explain(pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select "+t.ownName("_adopt_lock")+"($1)", id); err != nil {
			return err
		}
		return f(tx, id)
	}))
}

// ParkedKeys describes up to limit parked keys of parked rows, those due soonest first, held
// ones last.
func (t *Table) ParkedKeys(ctx context.Context, limit int) ([]admin.ParkedKey, error) {
	id, err := t.subscription(ctx)
	if err != nil {
		return nil, err
	}
	rows, _ := t.pool.Query(ctx, t.own("parked_keys"), id, limit)
	keys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k admin.ParkedKey, err error) {
		var failures []byte
		if err := row.Scan(&k.Key, &k.Messages, &k.FirstSeq, &k.Attempt, &failures, (*zeronull.Timestamptz)(&k.Since), (*zeronull.Timestamptz)(&k.Retry), &k.Held); err != nil {
			return k, err
		}
		var h pg.History
		h.Parse(failures)
		k.Err, k.Since, k.Retry = h.LastError(), k.Since.UTC(), k.Retry.UTC()
		return k, nil
	})
	return keys, t.explain(err)
}

// RetryParked has parked rows tried at once that wait for another attempt: those of the keys, or all without
// one. It returns how many there are.
func (t *Table) RetryParked(ctx context.Context, keys ...string) (n int, err error) {
	err = t.alone(ctx, func(tx pgx.Tx, id int64) error {
		tag, err := tx.Exec(ctx, t.own("retry_parked"), id, keys)
		n = int(tag.RowsAffected())
		return err
	})
	return n, err
}

// maxBacklog is how far Status counts; a larger backlog is reported as this.
const maxBacklog = 1_000_000

// Status describes the subscription. Its backlog is counted up to a million rows. Several workers
// are one holder, for example "3 workers".
func (t *Table) Status(ctx context.Context) (admin.SubscriptionStatus, error) {
	status := admin.SubscriptionStatus{Subscription: t.name}
	m, err := t.compare(ctx)
	if err != nil {
		return status, err
	}
	var oldest int64
	if err := pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select set_config('enable_seqscan', 'on', true), set_config('enable_bitmapscan', 'on', true)"); err != nil {
			return err
		}
		return tx.QueryRow(ctx, newStatements(m, t.schema).backlog, maxBacklog).Scan(&status.Backlog, &oldest)
	}); err != nil {
		return status, t.explain(err)
	}
	f, err := t.find(ctx, t.pool)
	if status.Subscription = f.name; f.id != 0 {
		err = t.remembered(ctx, f.id, &status)
	}
	if err != nil {
		return status, t.explain(err)
	}
	if status.Backlog < maxBacklog {
		status.Backlog = max(0, status.Backlog-status.Parked-status.DeadLetters)
	}
	if status.Backlog > 0 {
		status.OldestAge = time.Duration(max(0, oldest)) * time.Microsecond
	}
	return status, nil
}

// remembered fills in the facts from Penstock's own tables.
func (t *Table) remembered(ctx context.Context, id int64, status *admin.SubscriptionStatus) error {
	var parked float64
	if err := t.pool.QueryRow(ctx, t.own("status"), id).Scan(&status.DeadLetters, &status.Parked, &status.ParkedKeys, &status.HeldKeys, &parked, &status.Rate); err != nil {
		return err
	}
	status.ParkedAge = time.Duration(parked * float64(time.Second))
	head, err := t.state(ctx, t.pool, id)
	if status.Epoch, status.Settled = head.epoch, head.settled; err != nil || !head.held {
		return err
	}
	status.Holder, status.HolderSince, status.LeaseUntil = head.holder, head.since.UTC(), head.until.UTC()
	if head.workers {
		var n int
		if err := t.pool.QueryRow(ctx, t.own("workers"), id, head.epoch).Scan(&n, (*zeronull.Timestamptz)(&head.sink.down), &head.sink.why); err != nil {
			return err
		}
		if n > 1 {
			status.Holder = fmt.Sprintf("%d workers", n)
		}
	}
	if !head.sink.down.IsZero() {
		status.SinkDown, status.SinkError = head.sink.down.UTC(), head.sink.why
	}
	return nil
}

// Drop removes the subscription with its low-water mark, parked rows and dead letters.
// The table and its rows stay as they are. Its relay gets penstock.ErrFenced.
func (t *Table) Drop(ctx context.Context) error {
	return t.alone(ctx, func(tx pgx.Tx, id int64) error {
		var b pgx.Batch
		for _, table := range []string{"_adopt_row where subscription", "_adopt_log where subscription", "_adopt_subscription where id"} {
			b.Queue(fmt.Sprintf("delete from %s.%s = $1", pgx.Identifier{t.schema}.Sanitize(), table), id)
		}
		return tx.SendBatch(ctx, &b).Close()
	})
}
