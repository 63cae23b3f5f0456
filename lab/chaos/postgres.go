package main

import (
	"context"
	"math/rand/v2"
	"strings"

	"github.com/jackc/pgx/v5"
)

// database is a producer's connection, with one transaction after the other.
type database interface {
	begin(ctx context.Context) error
	commit(ctx context.Context) error
	rollback(ctx context.Context) error
	close(ctx context.Context) error
	// mark makes the transaction one that writes.
	mark(ctx context.Context) error
	// count counts a message of the key, which is locked from then on.
	count(ctx context.Context, key string) (int64, error)
	// write writes the business row, the message, and its job if it has one.
	write(ctx context.Context, m message, id any, headers string, payload []byte, random *rand.Rand) error
}

// postgresConn is one to PostgreSQL.
type postgresConn struct {
	*pgx.Conn
	profile string
	tx      pgx.Tx
}

func connectPostgres(ctx context.Context, url, profile string) (database, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	return &postgresConn{Conn: conn, profile: profile}, nil
}

func (c *postgresConn) begin(ctx context.Context) (err error) {
	c.tx, err = c.Begin(ctx)
	return err
}

func (c *postgresConn) commit(ctx context.Context) error   { return c.tx.Commit(ctx) }
func (c *postgresConn) rollback(ctx context.Context) error { return c.tx.Rollback(ctx) }
func (c *postgresConn) close(ctx context.Context) error    { return c.Close(ctx) }

func (c *postgresConn) mark(ctx context.Context) error {
	_, err := c.tx.Exec(ctx, "select pg_current_xact_id()")
	return err
}

func (c *postgresConn) count(ctx context.Context, key string) (n int64, err error) {
	return n, c.tx.QueryRow(ctx, "update business.account set n = n + 1 where key = $1 returning n", key).Scan(&n)
}

func (c *postgresConn) write(ctx context.Context, m message, id any, headers string, payload []byte, random *rand.Rand) error {
	var key any
	if m.Key != "" {
		key = m.Key
	}
	batch := &pgx.Batch{}
	batch.Queue("insert into business.fact (id, key, n, topic, own_id) values ($1, $2, $3, $4, $5)", m.ID, key, m.N, m.Topic, m.OwnID)
	insert := "insert into penstock.shop (id, key, topic, headers, payload) values ($1, $2, $3, $4::jsonb, $5)"
	switch {
	case c.profile == portable:
		insert = strings.Replace(insert, "penstock.shop", "penstock_portable.outbox_shop", 1)
	case random.IntN(5) == 0:
		insert = "select penstock.publish_bytes('shop', $5, $2, $3, $4::jsonb, $1)"
	}
	batch.Queue(insert, id, key, m.Topic, headers, payload)
	if m.hasJob() {
		insert = "select penstock.enqueue_bytes('tasks', $1, $2, priority => $3, not_before => $4, headers => $5::jsonb)"
		if c.profile == portable {
			insert = "insert into penstock_portable.queue_tasks (payload, key, priority, not_before, headers) values ($1, $2, $3, $4, $5::jsonb)"
		}
		batch.Queue(insert, payload, key, m.priority(), m.notBefore(), headers)
	}
	return c.tx.SendBatch(ctx, batch).Close()
}
