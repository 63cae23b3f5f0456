package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pg"
)

// deadLetters are the columns of messages that become dead letters.
type deadLetters struct {
	facts              []deadFacts
	ids, keys, headers []*string
	topics             []string
	payloads           [][]byte
	createdAt          []time.Time
	at                 map[int64]int // where a seq is
}

// deadFacts are the columns that JSON can hold in a database of any encoding.
type deadFacts struct {
	Seq      int64           `json:"seq"`
	Attempt  int             `json:"attempt"`
	Failures json.RawMessage `json:"failures"`
	Since    *time.Time      `json:"since"`
	Held     bool            `json:"held"`
}

func (d *deadLetters) empty() bool { return len(d.facts) == 0 }

func (d *deadLetters) add(m *penstock.Message, h pg.History, held bool) {
	headers, err := encodeHeaders(m.Headers)
	if err != nil { // they came from the database as JSON
		headers = nil
	}
	facts := deadFacts{m.Seq, h.Attempt, json.RawMessage(h.JSON()), orNullTime(h.Since), held}
	if i, twice := d.at[m.Seq]; twice { // a replay also has it
		facts.Held = held || d.facts[i].Held
		d.facts[i] = facts
		return
	}
	if d.at == nil {
		d.at = map[int64]int{}
	}
	d.at[m.Seq] = len(d.facts)
	d.facts = append(d.facts, facts)
	d.ids = append(d.ids, orNull(m.ID))
	d.keys = append(d.keys, orNull(m.Key))
	d.topics = append(d.topics, m.Topic)
	d.headers = append(d.headers, headers)
	d.payloads = append(d.payloads, append([]byte{}, m.Payload...)) // never nil, which is NULL
	d.createdAt = append(d.createdAt, m.CreatedAt)
}

// params are those of settle.sql for dead letters.
func (d *deadLetters) params() pgx.StrictNamedArgs {
	return pgx.StrictNamedArgs{"dead": notNil(d.facts), "dead_ids": d.ids, "dead_keys": d.keys, "dead_topics": d.topics, "dead_headers": d.headers, "dead_payloads": d.payloads, "dead_created_at": d.createdAt}
}

// deadLettersAtOnce is little, because their payloads are read whole before they are
// counted.
const deadLettersAtOnce = 16

// fetchDeadLetters returns dead letters that someone asked to send again.
func (src *Source) fetchDeadLetters(ctx context.Context, sess *session, limit driver.Limit) (*pending, error) {
	a := &sess.outOfBand
	src.mu.Lock()
	for _, seq := range src.landed {
		delete(a.inFlight, seq)
	}
	src.landed = nil
	src.mu.Unlock()
	inFlight := make([]int64, 0, len(a.inFlight))
	for seq := range a.inFlight {
		inFlight = append(inFlight, seq)
	}
	found, err := src.store.queryDeadLetters(ctx, sess.read, statement("retries", src.store.schema, src.req.Outbox), src.id, inFlight, min(limit.Messages, deadLettersAtOnce))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	p := &pending{origin: fromDeadLetters}
	bytes := 0
	for _, l := range found {
		m := l.Message
		h := pg.History{Attempt: m.Attempt, Failures: l.Failures, Since: m.FailedSince}
		m.Attempt++
		if bytes += m.Size(); len(p.messages) > 0 && bytes > limit.Bytes {
			break
		}
		a.inFlight[m.Seq] = true
		p.messages = append(p.messages, m)
		p.histories = append(p.histories, h)
		p.setKeyOrder(len(p.messages)-1, driver.OutOfOrder)
	}
	return p, nil
}

// querier has the methods that a transaction, a connection and the pool share. An error of Query is also that of its rows, where it is read.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// queryDeadLetters runs a statement that returns seq, created_at, id, key, topic,
// headers, payload, attempt, failures, failed_since, died_at and held.
func (s *Store) queryDeadLetters(ctx context.Context, q querier, sql string, args ...any) ([]admin.DeadLetter, error) {
	return list(ctx, q, func(row pgx.CollectableRow) (admin.DeadLetter, error) {
		var (
			l                 admin.DeadLetter
			h                 pg.History
			m                 = &l.Message
			headers, failures []byte
		)
		err := row.Scan(&m.Seq, &m.CreatedAt, (*zeronull.Text)(&m.ID), (*zeronull.Text)(&m.Key), &m.Topic, &headers, &m.Payload, &m.Attempt, &failures, (*zeronull.Timestamptz)(&m.FailedSince), &l.At, &l.Held)
		if err != nil {
			return l, err
		}
		m.CreatedAt, m.FailedSince, l.At = m.CreatedAt.UTC(), m.FailedSince.UTC(), l.At.UTC()
		if len(headers) > 0 {
			m.Headers, err = decodeHeaders(headers)
		}
		h.Parse(failures)
		l.Failures = withUnread(h.Failures, m.Attempt, err)
		return l, nil
	}, sql, args...)
}

// subscription finds a subscription's id.
func (s *Store) subscription(ctx context.Context, outbox, name string) (id int64, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	err = s.pool.QueryRow(ctx, "select id from "+s.table("_subscription")+" where outbox = $1 and name = $2", outbox, name).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		if _, missing := s.outboxIDs(ctx, s.pool, outbox); missing != nil {
			return 0, missing
		}
		return 0, noSubscription(outbox, name)
	}
	return id, s.explain(err)
}

// The actions of dead_letters.sql on the dead letters that it has chosen.
const (
	listDeadLetters = `select d.seq, d.created_at, d.id, d.key, d.topic, d.headers, d.payload, d.attempt, d.failures, d.failed_since, d.died_at, d.held
		from (select d.*, sum(octet_length(d.payload)) over (order by d.seq) - octet_length(d.payload) as bytes from chosen join {schema}._dead_letter d on d.subscription = $1 and d.seq = chosen.seq) d
		where d.bytes < coalesce(nullif({bytes}, 0), d.bytes + 1) order by d.seq`
	retryDeadLetters   = `update {schema}._dead_letter d set retry = true from chosen where d.subscription = $1 and d.seq = chosen.seq`
	discardDeadLetters = `delete from {schema}._dead_letter d using chosen where d.subscription = $1 and d.seq = chosen.seq`
)

// chooseDeadLetters makes the statement and its parameters.
func (s *Store) chooseDeadLetters(ctx context.Context, q admin.DeadLetterQuery, action, lock string) (sql string, args []any, err error) {
	id, err := s.subscription(ctx, q.Outbox, q.Subscription)
	if err != nil {
		return "", nil, err
	}
	limit := int64(math.MaxInt64)
	if q.Limit > 0 {
		limit = int64(q.Limit)
	}
	sql = fillIn(statement("dead_letters", s.schema, q.Outbox), s.schema, action, lock)
	return sql, []any{id, orNullSlice(q.Seqs), orNullSlice(q.IDs), orNull(q.Key), orNull(q.Topic), orNull(q.Error),
		orNullTime(q.DiedBefore), orNullTime(q.DiedAfter), q.AfterSeq, limit}, nil
}

func orNullSlice[T any](s []T) any {
	if len(s) == 0 {
		return nil
	}
	return s
}

// DeadLetters implements driver.Operator.
func (s *Store) DeadLetters(ctx context.Context, q admin.DeadLetterQuery) ([]admin.DeadLetter, error) {
	sql, args, err := s.chooseDeadLetters(ctx, q, strings.ReplaceAll(listDeadLetters, "{bytes}", strconv.Itoa(q.Bytes)), "")
	if err != nil {
		return nil, err
	}
	found, err := s.queryDeadLetters(ctx, s.pool, sql, args...)
	return found, s.explain(err)
}

// DeadLetterCauses counts the dead letters that q chooses by their last errors, the most frequent first.
func (s *Store) DeadLetterCauses(ctx context.Context, q admin.DeadLetterQuery) ([]admin.DeadCause, error) {
	sql, args, err := s.chooseDeadLetters(ctx, q, countCauses, "")
	if err != nil {
		return nil, err
	}
	found, err := s.causes(ctx, sql, args)
	return found, s.explain(err)
}

// DeadNumbers returns up to most seqs of a subscription's dead letters, in order, those after the given one. Without a subscription it
// returns the ids of a queue's dead letters.
func (s *Store) DeadNumbers(ctx context.Context, in, subscription string, after int64, most int) ([]int64, error) {
	of, name := "select d.id from {schema}._dead_job d where d.queue = (select q.id from {schema}._queue q where q.name = $1)", any(in)
	if subscription != "" {
		id, err := s.subscription(ctx, in, subscription)
		if err != nil {
			return nil, err
		}
		of, name = "select d.seq as id from {schema}._dead_letter d where d.subscription = $1 and not d.retry", id
	} else if err := s.mayCall(ctx, in, "count", "null"); err != nil {
		return nil, err
	}
	found, err := list(ctx, s.pool, pgx.RowTo[int64], fillIn("select id from ({action}) d where id > $2 order by id limit $3", s.schema, of, ""), name, after, most)
	return found, s.explain(err)
}

// RetryDeadLetters implements driver.Operator.
func (s *Store) RetryDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error) {
	return s.change(ctx, q, retryDeadLetters)
}

// DiscardDeadLetters implements driver.Operator.
func (s *Store) DiscardDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error) {
	return s.change(ctx, q, discardDeadLetters)
}

func (s *Store) change(ctx context.Context, q admin.DeadLetterQuery, action string) (int, error) {
	sql, args, err := s.chooseDeadLetters(ctx, q, action, "for update")
	if err != nil {
		return 0, err
	}
	tag, err := s.pool.Exec(ctx, sql, args...)
	return int(tag.RowsAffected()), s.explain(err)
}
