package postgres

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

var _ driver.WaitingPublisher = (*Queue)(nil)

// PublishAfter implements driver.WaitingPublisher. It needs the privileges of an enqueuer of the queue and of a producer of the outbox.
func (q *Queue) PublishAfter(ctx context.Context, m penstock.WaitingMessage) (int64, error) {
	id, err := q.publishAfter(ctx, q.store.pool, m)
	if errors.Is(err, penstock.ErrNoOutbox) {
		return 0, err
	}
	return id, q.failed(ctx, err)
}

// PublishAfterTx is PublishAfter within tx.
func (q *Queue) PublishAfterTx(ctx context.Context, tx pgx.Tx, m penstock.WaitingMessage) (int64, error) {
	id, err := q.publishAfter(ctx, tx, m)
	return id, q.refused(ctx, err, "enqueue")
}

// PublishAfterSQL is PublishAfterTx for database/sql, with any PostgreSQL driver.
func (q *Queue) PublishAfterSQL(ctx context.Context, tx SQLTx, m penstock.WaitingMessage) (id int64, err error) {
	args, err := q.waiting(&m)
	if err != nil {
		return 0, err
	}
	id, err = oneSQL(ctx, tx, q.publishAfterCall(), args...)
	return id, q.refused(ctx, withoutOutbox(err, m.Outbox), "enqueue")
}

func (q *Queue) publishAfter(ctx context.Context, on querier, m penstock.WaitingMessage) (int64, error) {
	args, err := q.waiting(&m)
	if err != nil {
		return 0, err
	}
	id, err := one[int64](ctx, on, q.publishAfterCall(), args...)
	return id, withoutOutbox(err, m.Outbox)
}

func (q *Queue) publishAfterCall() string {
	return "select " + q.store.table("publish_after") + "($1::text, $2::text::bigint[], $3::text, $4::bytea, $5::text, $6::text, $7::text::jsonb, $8::text, $9::text)"
}

// waiting returns the arguments of the call, with the barriers as text, which every driver sends.
func (q *Queue) waiting(m *penstock.WaitingMessage) ([]any, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	barriers := make([]string, len(m.WaitsFor))
	for i, b := range m.WaitsFor {
		barriers[i] = strconv.FormatInt(b, 10)
	}
	headers, err := encodeHeaders(m.Headers)
	return []any{q.name, "{" + strings.Join(barriers, ",") + "}", m.Outbox, notNil(m.Payload), orNull(m.Key), m.Topic, headers, orNull(m.ID), orNull(string(m.OnDead))}, err
}

// withoutOutbox returns ErrNoOutbox if the error is that there is no such outbox.
func withoutOutbox(err error, outbox string) error {
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) && pg.Code == "42P01" && strings.HasPrefix(pg.Message, "there is no outbox") {
		return noOutbox(outbox)
	}
	return err
}
