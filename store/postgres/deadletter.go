package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
)

// deadLetters are the columns of what is to be buried.
type deadLetters struct {
	seqs         []int64
	ids, keys    []*string
	topics, errs []string
	headers      []*string
	payloads     [][]byte
	createdAt    []time.Time
	attempts     []int32
}

func (d *deadLetters) empty() bool { return len(d.seqs) == 0 }

func (d *deadLetters) add(m *penstock.Message, reason string) {
	headers, err := encodeHeaders(m.Headers)
	if err != nil { // they came from the database as JSON
		headers = nil
	}
	d.seqs = append(d.seqs, m.Seq)
	d.ids = append(d.ids, orNull(m.ID))
	d.keys = append(d.keys, orNull(m.Key))
	d.topics = append(d.topics, m.Topic)
	d.headers = append(d.headers, headers)
	d.payloads = append(d.payloads, append([]byte{}, m.Payload...)) // never nil, which is NULL
	d.createdAt = append(d.createdAt, m.CreatedAt)
	d.attempts = append(d.attempts, int32(m.Attempt))
	d.errs = append(d.errs, reason)
}

// writeDead is writeCursor with dead letters, in one statement.
func (src *Source) writeDead(ctx context.Context, sess *session, w write, lease time.Duration) error {
	params := src.cursorParams(w.cursor, w.count, lease)
	args := make([]any, 0, len(params)+10)
	args = append(args, pgx.QueryResultFormats{pgx.BinaryFormatCode})
	for _, p := range params {
		if p == nil {
			args = append(args, nil)
		} else {
			args = append(args, string(p))
		}
	}
	d := &w.dead
	args = append(args, d.seqs, d.ids, d.keys, d.topics, d.headers, d.payloads, d.createdAt, d.attempts, d.errs, w.delivered)
	var moved bool
	if err := sess.write.QueryRow(ctx, statement("settle_dead", src.store.schema, src.req.Outbox), args...).Scan(&moved); err != nil {
		return err
	}
	if !moved {
		return penstock.ErrFenced
	}
	return nil
}

// retryPoll is what Fetch knows of dead letters on their way again.
type retryPoll struct {
	due    bool           // the last poll saw some
	looked bool           // since that poll
	flying map[int64]bool // returned and not settled
}

// fetchRetries returns dead letters that someone asked to send again. Each poll
// lets it look once, so new messages and old ones take turns.
func (src *Source) fetchRetries(ctx context.Context, sess *session, limit penstock.Limit) ([]penstock.Message, error) {
	if src.req.Ephemeral {
		return nil, nil
	}
	sess.retries.looked = true
	src.mu.Lock()
	for _, seq := range src.landed {
		delete(sess.retries.flying, seq)
	}
	src.landed = nil
	src.mu.Unlock()
	flying := make([]int64, 0, len(sess.retries.flying))
	for seq := range sess.retries.flying {
		flying = append(flying, seq)
	}
	letters, err := src.store.queryLetters(ctx, sess.read, statement("retries", src.store.schema, src.req.Outbox), src.id, flying, min(limit.Messages, 100))
	if err != nil || len(letters) == 0 {
		return nil, err
	}
	var messages []penstock.Message
	bytes := 0
	for _, l := range letters {
		m := l.Message
		m.Attempt++
		if bytes += m.Size(); len(messages) > 0 && bytes > limit.Bytes {
			break
		}
		sess.retries.flying[m.Seq] = true
		messages = append(messages, m)
	}
	return messages, nil
}

// querier is what both a connection and the pool can do.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// queryLetters runs a statement that returns seq, created_at, id, key, topic,
// headers, payload, attempt and, optionally, error and died_at.
func (s *Store) queryLetters(ctx context.Context, q querier, sql string, args ...any) ([]penstock.DeadLetter, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (penstock.DeadLetter, error) {
		var (
			l       penstock.DeadLetter
			m       = &l.Message
			id, key *string
			headers []byte
		)
		into := []any{&m.Seq, &m.CreatedAt, &id, &key, &m.Topic, &headers, &m.Payload, &m.Attempt}
		if len(row.FieldDescriptions()) > len(into) {
			into = append(into, &l.Err, &l.At)
		}
		if err := row.Scan(into...); err != nil {
			return l, err
		}
		if id != nil {
			m.ID = *id
		}
		if key != nil {
			m.Key = *key
		}
		m.CreatedAt = m.CreatedAt.UTC()
		if len(headers) > 0 {
			m.Headers, err = decodeHeaders(headers)
		}
		return l, err
	})
}

// subscription finds a subscription's id.
func (s *Store) subscription(ctx context.Context, outbox, name string) (id int64, err error) {
	err = s.pool.QueryRow(ctx, "select id from "+s.table("_subscription")+" where outbox = $1 and name = $2", outbox, name).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		if _, missing := s.outboxUID(ctx, s.pool, outbox); missing != nil {
			return 0, missing
		}
		return 0, penstock.WithHint(fmt.Errorf("outbox %q has no subscription %q", outbox, name), "penstock status shows those there are")
	}
	return id, s.explain(err)
}

// DeadLetters returns up to limit dead letters, oldest first, but those that are
// on their way again.
func (s *Store) DeadLetters(ctx context.Context, outbox, subscription string, limit int) ([]penstock.DeadLetter, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	id, err := s.subscription(ctx, outbox, subscription)
	if err != nil {
		return nil, err
	}
	letters, err := s.queryLetters(ctx, s.pool, "select seq, created_at, id, key, topic, headers, payload, attempt, error, died_at from "+
		s.table("_dead_letter")+" where subscription = $1 and not retry order by died_at, seq limit $2", id, limit)
	return letters, s.explain(err)
}

// RetryDeadLetters marks dead letters to be sent again.
func (s *Store) RetryDeadLetters(ctx context.Context, outbox, subscription string, seqs ...int64) (int, error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	id, err := s.subscription(ctx, outbox, subscription)
	if err != nil {
		return 0, err
	}
	tag, err := s.pool.Exec(ctx, "update "+s.table("_dead_letter")+" set retry = true where subscription = $1 and not retry and seq = any ($2)", id, seqs)
	return int(tag.RowsAffected()), s.explain(err)
}
