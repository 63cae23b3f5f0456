package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/tables"
)

// source is one reader.
type source struct {
	*tables.Reader
	store *Store
	also  txWork // to do in the transaction of a Settle
}

var (
	_ driver.Source  = (*source)(nil)
	_ tables.Reading = (*source)(nil)
)

// txWork is something to do in a transaction.
type txWork func(ctx context.Context, tx onTx) error

// Subscribe implements driver.Store.
func (s *Store) Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error) {
	src := &source{store: s}
	src.Reader = tables.NewReader(src, onTables{s}, func(err error) error { return err }, &s.retries, req) // the store has explained errors
	if err := src.Subscribe(ctx, src.take); err != nil {
		return nil, err
	}
	return src, nil
}

// take takes the lease and finds the position.
func (s *source) take(ctx context.Context, tx tables.Tx) error {
	var at tables.Cursor
	var ahead string
	b := new(tables.Batch).Do("take_lease", s.Args(tables.Args{"length": s.Req.Lease.Microseconds()}))
	b.Row(new(bool), "select epoch, position, ahead from {schema}.subscriptions where id = {sub}", s.Args(nil), &s.Epoch, &at.Position, &ahead)
	if err := tx.Run(ctx, b); err != nil {
		return err
	}
	err := json.Unmarshal([]byte(ahead), &at.Ahead)
	s.Begin(at)
	return err
}

// reading is a pool, of which each statement sees the commits before it.
type reading struct{ *sql.DB }

func (reading) Rollback() error { return nil }

// ReadPage implements tables.Reading. It is not cancelled half way: a page takes milliseconds, and watching a context costs a fifth of the
// throughput. It asks which messages are in flight before it asks the database: another one is then as the last Settle has left it.
func (s *source) ReadPage(ctx context.Context, p *tables.Page) error {
	ctx = context.WithoutCancel(ctx)
	on := onOurs(reading{s.store.readers})
	return s.store.explain(s.readPage(ctx, on, p))
}

func (s *source) readPage(ctx context.Context, on onTx, p *tables.Page) error {
	args := tables.Args{"most": p.Most()}
	if p.From != tables.FromPark {
		args["waits"] = tables.SQL("")
	}
	if p.From != tables.FromLog {
		args["seqs"], args["keys"] = s.SeqsInFlight(), s.KeysInFlight()
	}
	if s.ID != 0 {
		there, mine, same, behind := false, int64(0), false, false
		since := s.Due(sweep)
		known, read := s.Known()
		b := new(tables.Batch).Row(&there, "state", s.Args(tables.Args{"since": since.UTC(), "known": known, "read": read}), &mine, &same, &behind, &s.Has[tables.FromPark], &s.Has[tables.FromReplay])
		if err := on.Run(ctx, b); err != nil {
			return err
		}
		if !there || mine != s.Epoch {
			return s.Fenced(ctx, s.DB)
		}
		if !same {
			return s.restored(ctx)
		}
		s.IsDue(since, on.at, margin)
		args["since"] = since.UTC()
		if behind && p.From != tables.FromPark {
			args["waits"] = waits(s.ID)
		}
	}
	switch p.From {
	case tables.FromPark:
		return s.readParked(ctx, on, p, args)
	case tables.FromReplay:
		return rows(ctx, on, p, "fetch_replay", s.Args(args), func(scan tables.Scan) error { return p.Replayed(&s.Box, scan) })
	}
	return s.ReadOn(p, func(after int64, row func(tables.Scan) error) error {
		args["after"] = after
		return rows(ctx, on, p, "fetch", s.Args(args), row)
	})
}

// atMillis takes milliseconds since 1970.
type atMillis struct{ *time.Time }

// Scan implements sql.Scanner.
func (at atMillis) Scan(src any) error {
	ms, ok := src.(int64)
	if !ok {
		return fmt.Errorf("created_at is a %T", src)
	}
	*at.Time = time.UnixMilli(ms).UTC()
	return nil
}

// waits is the column that shows whether a message's key is parked or held. It is left out while none is.
func waits(sub int64) tables.SQL {
	of := fmt.Sprintf("exists (select 1 from penstock_entries w where w.subscription_id = %d and w.", sub)
	return tables.SQL(", " + of + "parked_key = cast(t.key as text)) or " + of + "hold = cast(t.key as text))")
}

// errFull ends the reading of rows.
var errFull = errors.New("the page is full")

// rows reads them until the page is full.
func rows(ctx context.Context, on onTx, p *tables.Page, text string, args tables.Args, row func(tables.Scan) error) error {
	var scan tables.Scan
	message := func(dest ...any) error { // there are no buckets, and times are milliseconds
		if at, ok := dest[1].(*time.Time); ok {
			dest[1] = atMillis{at}
		}
		if args["waits"] == tables.SQL("") {
			return scan(dest[1 : len(dest)-1]...)
		}
		return scan(dest[1:]...)
	}
	if err := on.Run(ctx, new(tables.Batch).Rows(func(s tables.Scan) error {
		scan = s
		if err := row(message); err != nil || !p.Full() {
			return err
		}
		return errFull
	}, text, args)); err != errFull {
		return err
	}
	return nil
}

// readParked reads the heads that are due, and then messages behind those that were never refused.
func (s *source) readParked(ctx context.Context, on onTx, p *tables.Page, args tables.Args) error {
	type head struct {
		key string
		seq int64
	}
	var heads []head
	behind := false
	var r tables.Row
	var attempts int
	var since *time.Time
	var failures []byte
	dest := r.Dest(&r.InOrder, &attempts, &since, &failures)
	read := func(scan tables.Scan) error {
		since, failures = nil, nil
		if err := scan(dest...); err != nil {
			return err
		}
		if behind && attempts > 0 {
			return errFull // it was the head before one that a replay has brought
		}
		if err := p.Parked(&s.Box, &r, attempts, since, failures); err != nil {
			return err
		}
		if !behind && r.InOrder && attempts == 0 {
			heads = append(heads, head{r.Key(), r.Seq})
		}
		return nil
	}
	if err := rows(ctx, on, p, "fetch_heads", s.Args(args), read); err != nil {
		return err
	}
	behind = true
	for _, h := range heads {
		if p.Full() {
			break
		}
		if err := rows(ctx, on, p, "fetch_behind", s.Args(args).With(tables.Args{"key": h.key, "seq": h.seq}), read); err != nil {
			return err
		}
	}
	return nil
}
