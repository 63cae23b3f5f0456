package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/penstock/penstock"
)

// FirstSQL is First for database/sql, with any PostgreSQL driver.
func (i *Inbox) FirstSQL(ctx context.Context, tx SQLTx, id string) (isNew bool, err error) {
	if err := validReceivedID(id); err != nil {
		return false, err
	}
	err = i.query(ctx, tx, func(scan func(...any) error) error { return scan(&isNew) }, i.first, i.consumer, id)
	return isNew, err
}

// FirstOfSQL is FirstOf for database/sql.
func (i *Inbox) FirstOfSQL(ctx context.Context, tx SQLTx, ids ...string) (fresh []string, err error) {
	if err := validReceivedIDs(ids); err != nil || len(ids) == 0 {
		return nil, err
	}
	text, err := json.Marshal(ids) // drivers may have no arrays
	if err != nil {
		return nil, err
	}
	err = i.query(ctx, tx, func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		fresh = append(fresh, id)
		return err
	}, i.manyOf, i.consumer, string(text))
	return fresh, err
}

// InOrderSQL is InOrder for database/sql.
func (i *Inbox) InOrderSQL(ctx context.Context, tx SQLTx, m penstock.Message, wait time.Duration) ([]penstock.Released, error) {
	args, err := i.received(&m, wait)
	if err != nil {
		return nil, err
	}
	return i.releasedSQL(ctx, tx, i.inOrder, args...)
}

// DueSQL is Due for database/sql.
func (i *Inbox) DueSQL(ctx context.Context, tx SQLTx, n int) ([]penstock.Released, error) {
	return i.releasedSQL(ctx, tx, i.due, i.consumer, n)
}

func (i *Inbox) releasedSQL(ctx context.Context, tx SQLTx, query string, args ...any) (all []penstock.Released, err error) {
	err = i.query(ctx, tx, func(scan func(...any) error) error {
		r, err := scanReleased(scan)
		all = append(all, r)
		return err
	}, query, args...)
	return all, err
}

func (i *Inbox) query(ctx context.Context, tx SQLTx, each func(scan func(...any) error) error, query string, args ...any) error {
	return i.explain(eachSQL(ctx, tx, each, query, args...))
}
