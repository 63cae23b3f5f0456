package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
)

// sqlConn is the part of a producer's connection to MariaDB that one to SQLite has too.
type sqlConn struct {
	db                   *sql.DB
	tx                   *sql.Tx
	facts, outbox, queue string // tables
	milliseconds         bool   // the queue has times as numbers
}

func (c *sqlConn) begin(ctx context.Context) (err error) {
	c.tx, err = c.db.BeginTx(ctx, nil)
	return err
}

func (c *sqlConn) commit(context.Context) error   { return c.tx.Commit() }
func (c *sqlConn) rollback(context.Context) error { return c.tx.Rollback() }
func (c *sqlConn) close(context.Context) error    { return c.db.Close() }

func (c *sqlConn) write(ctx context.Context, m message, id any, headers string, payload []byte, _ *rand.Rand) error {
	key := sql.NullString{String: m.Key, Valid: m.Key != ""}
	insert := func(table, columns string, values ...any) error {
		_, err := c.tx.ExecContext(ctx, fmt.Sprintf("insert into %s (%s) values (?, ?, ?, ?, ?)", table, columns), values...)
		return err
	}
	err := insert(c.facts, "id, `key`, n, topic, own_id", m.ID, key, m.N, m.Topic, m.OwnID)
	if err == nil {
		err = insert(c.outbox, "id, `key`, topic, headers, payload", id, key, m.Topic, headers, payload)
	}
	if err == nil && m.hasJob() {
		var notBefore any
		if at := m.notBefore(); at != nil && c.milliseconds {
			notBefore = at.UnixMilli()
		} else if at != nil {
			notBefore = *at
		}
		err = insert(c.queue, "`key`, priority, not_before, headers, payload", key, m.priority(), notBefore, headers, payload)
	}
	return err
}

// readFacts reads the business table.
func readFacts(ctx context.Context, db *sql.DB, table string, facts map[string]message) error {
	rows, err := db.QueryContext(ctx, "select id, coalesce(`key`, ''), n, topic, own_id from "+table)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var m message
		if err := rows.Scan(&m.ID, &m.Key, &m.N, &m.Topic, &m.OwnID); err != nil {
			return err
		}
		facts[m.ID] = m
	}
	return rows.Err()
}
