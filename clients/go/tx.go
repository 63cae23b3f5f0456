package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of the kind database/sql

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres"
)

// tx is a caller's transaction.
type tx interface {
	publish(ctx context.Context, outbox string, msgs ...penstock.Message) error
	enqueue(ctx context.Context, queue string, jobs ...penstock.NewJob) ([]penstock.Enqueued, error)
	barrier(ctx context.Context, queue string) (int64, error)
	seal(ctx context.Context, queue string, barrier int64) error
	publishAfter(ctx context.Context, queue string, m penstock.WaitingMessage) (int64, error)
	first(ctx context.Context, consumer, id string) (bool, error)
	reporter(queue string) driver.Reporter
	execute(ctx context.Context, sql string) ([][]*string, error)
	end(ctx context.Context, commit bool) error
}

func begin(ctx context.Context, d *db, kind string) (tx, error) {
	switch kind {
	case "", "pgx":
		conn, err := pgx.Connect(ctx, d.url)
		if err != nil {
			return nil, err
		}
		t, err := conn.Begin(ctx)
		return pgxTx{t, d.Store}, err
	case "database/sql":
		pool, err := sql.Open("pgx", d.url)
		if err != nil {
			return nil, err
		}
		t, err := pool.BeginTx(ctx, nil)
		return sqlTx{t, pool, d.Store}, err
	}
	return nil, fmt.Errorf("there is no kind %q of transactions", kind)
}

type pgxTx struct {
	pgx.Tx
	store *postgres.Store
}

func (t pgxTx) publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	return t.store.Outbox(outbox).PublishTx(ctx, t.Tx, msgs...)
}

func (t pgxTx) enqueue(ctx context.Context, queue string, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	return t.store.Queue(queue).EnqueueTx(ctx, t.Tx, jobs...)
}

func (t pgxTx) barrier(ctx context.Context, queue string) (int64, error) {
	return t.store.Queue(queue).BarrierTx(ctx, t.Tx)
}

func (t pgxTx) seal(ctx context.Context, queue string, barrier int64) error {
	return t.store.Queue(queue).SealTx(ctx, t.Tx, barrier)
}

func (t pgxTx) publishAfter(ctx context.Context, queue string, m penstock.WaitingMessage) (int64, error) {
	return t.store.Queue(queue).PublishAfterTx(ctx, t.Tx, m)
}

func (t pgxTx) first(ctx context.Context, consumer, id string) (bool, error) {
	return t.store.Inbox(consumer).First(ctx, t.Tx, id)
}

func (t pgxTx) reporter(queue string) driver.Reporter { return t.store.Queue(queue).Reporter(t.Tx) }

func (t pgxTx) execute(ctx context.Context, sql string) ([][]*string, error) {
	rows, err := t.Query(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (texts []*string, err error) {
		for _, value := range row.RawValues() {
			texts = append(texts, nil)
			if value != nil {
				text := string(value)
				texts[len(texts)-1] = &text
			}
		}
		return texts, nil
	})
	return append([][]*string{}, all...), err
}

func (t pgxTx) end(ctx context.Context, commit bool) error {
	defer func() { _ = t.Conn().Close(ctx) }()
	if commit {
		return t.Commit(ctx)
	}
	return t.Rollback(ctx)
}

type sqlTx struct {
	*sql.Tx
	pool  *sql.DB
	store *postgres.Store
}

func (t sqlTx) publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	return t.store.Outbox(outbox).PublishSQL(ctx, t.Tx, msgs...)
}

func (t sqlTx) enqueue(ctx context.Context, queue string, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	return t.store.Queue(queue).EnqueueSQL(ctx, t.Tx, jobs...)
}

func (t sqlTx) barrier(ctx context.Context, queue string) (int64, error) {
	return t.store.Queue(queue).BarrierSQL(ctx, t.Tx)
}

func (t sqlTx) seal(ctx context.Context, queue string, barrier int64) error {
	return t.store.Queue(queue).SealSQL(ctx, t.Tx, barrier)
}

func (t sqlTx) publishAfter(ctx context.Context, queue string, m penstock.WaitingMessage) (int64, error) {
	return t.store.Queue(queue).PublishAfterSQL(ctx, t.Tx, m)
}

func (t sqlTx) first(ctx context.Context, consumer, id string) (bool, error) {
	return t.store.Inbox(consumer).FirstSQL(ctx, t.Tx, id)
}

func (t sqlTx) reporter(queue string) driver.Reporter { return t.store.Queue(queue).ReporterSQL(t.Tx) }

func (t sqlTx) execute(ctx context.Context, sql string) ([][]*string, error) {
	all := [][]*string{}
	rows, err := t.QueryContext(ctx, sql)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	for err == nil && rows.Next() {
		texts, into := make([]*string, len(columns)), make([]any, len(columns))
		for i := range texts {
			into[i] = &texts[i]
		}
		err = rows.Scan(into...)
		all = append(all, texts)
	}
	if err == nil {
		err = rows.Err()
	}
	return all, err
}

func (t sqlTx) end(_ context.Context, commit bool) error {
	defer func() { _ = t.pool.Close() }()
	if commit {
		return t.Commit()
	}
	return t.Rollback()
}
