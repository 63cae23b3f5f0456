package measure

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/rocksdb"
	"github.com/penstock/penstock/store/mysql"
	"github.com/penstock/penstock/store/portable"
	"github.com/penstock/penstock/store/postgres/adopt"
)

// churner is one of the ways to insert and consume that take turns.
type churner struct {
	contender
	byHand     bool
	curve      *ChurnCurve
	insert     string // names of statements, as the next two
	insertLate string
	size       string
	session    *session // inserts, and looks at sizes
	// consume takes the oldest rows, at most a batch.
	consume func() (n int, err error)
	// keep is the maintenance, once a second. May be nil.
	keep func(ctx context.Context) error
	// renew keeps the lease. May be nil.
	renew func(ctx context.Context) error
	// left is how many rows are not settled, and whether the late one is among them.
	left func() (n int64, late bool, err error)
	// lateAt is when the late row was consumed, zero if it is not known.
	lateAt time.Time

	consuming     *timeline
	busy          []time.Duration // by interval, of inserting and consuming
	rows          []int64         // consumed, by interval
	calls         []rocksdb.Calls // by interval
	last          time.Duration   // when its last turn within the run ended
	sizes         []int64
	late          *session                      // of the late row
	lateCommitted time.Time                     // zero while it is open
	closers       []func(context.Context) error // in reverse
}

// close removes the churner's objects.
func (c *churner) close(ctx context.Context) (err error) {
	for i := len(c.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, c.closers[i](ctx))
	}
	return err
}

func (cfg ChurnConfig) statements(table string) statements {
	words := cfg.words(table)
	words["batch"] = fmt.Sprint(cfg.Batch)
	words["margin"] = fmt.Sprint(cfg.Margin.Seconds())
	return cfg.read("churn", words)
}

// table makes the published table with its first rows. Its result has to be closed after an error
// as well.
func (cfg ChurnConfig) table(ctx context.Context, label, table string) (*churner, error) {
	c := &churner{
		contender: contender{Setup: cfg.Setup, label: label, sql: cfg.statements(table)},
		insert:    "insert", insertLate: "insert_late", size: "size",
	}
	if err := c.connected(ctx); err != nil {
		return c, err
	}
	if err := c.session.do("making "+label, c.sql["create"]); err != nil {
		return c, err
	}
	c.closers = append(c.closers, c.remove)
	c.left = func() (n int64, late bool, err error) {
		if err := c.session.value("counting what is left", c.sql["rest"], &n); err != nil {
			return 0, false, err
		}
		var lates int64
		err = c.session.value("looking for the late row", c.sql["rest_late"], &lates)
		return n, lates > 0, err
	}
	return c, c.preload()
}

func (c *churner) connected(ctx context.Context) (err error) {
	if c.session, err = c.connect(ctx); err != nil {
		return err
	}
	c.closers = append(c.closers, func(context.Context) error {
		c.session.close()
		return nil
	})
	return nil
}

// preload is the batch that is there when the loop begins, as published.
func (c *churner) preload() error {
	if err := c.session.prepare(c.sql, c.insert); err != nil {
		return err
	}
	_, err := c.session.run(c.insert)
	return err
}

// byHand is the published loop.
func (cfg ChurnConfig) byHand(ctx context.Context) (*churner, error) {
	c, err := cfg.table(ctx, "the hand-written loop", cfg.Name+"_churn_by_hand")
	if err != nil {
		return c, err
	}
	c.byHand = true
	if cfg.mysql() != nil {
		return c, c.byHandMySQL(cfg.Margin)
	}
	if err := c.session.do("setting the planner", c.sql["settings"]); err != nil {
		return c, err
	}
	if err := c.session.prepare(c.sql, "consume"); err != nil {
		return c, err
	}
	low := binary.BigEndian.AppendUint64(nil, 1<<63) // -infinity
	c.consume = func() (int, error) {
		rows, err := c.session.run("consume", low)
		if err != nil {
			return 0, err
		}
		low = bytes.Clone(rows[0][0])
		return int(binary.BigEndian.Uint64(rows[0][1])), nil
	}
	return c, nil
}

// ownOutbox is an outbox of Penstock's.
func (cfg ChurnConfig) ownOutbox(ctx context.Context) (*churner, error) {
	outbox := cfg.Name + "_churn"
	c := &churner{
		contender: contender{Setup: cfg.Setup, label: "Penstock's outbox", sql: cfg.statements(outbox)},
		insert:    "insert_outbox", insertLate: "insert_late_outbox", size: "size_outbox",
	}
	if err := c.connected(ctx); err != nil {
		return c, err
	}
	if cfg.plain() != nil {
		c.sql, c.size = cfg.statements("outbox_"+outbox), "size_portable"
		var err error
		if cfg.Store, err = cfg.plainStore(ctx); err != nil {
			return c, err
		}
		c.closers = append(c.closers, func(context.Context) error { return cfg.Store.Close() })
	}
	if err := cfg.Store.CreateOutbox(ctx, outbox); err != nil {
		return c, err
	}
	c.closers = append(c.closers, func(ctx context.Context) error { return cfg.Store.DropOutbox(ctx, outbox) })
	if err := c.preload(); err != nil {
		return c, err
	}
	src, err := cfg.Store.Subscribe(ctx, driver.Subscribe{Outbox: outbox, Subscription: subscription, Holder: holder})
	if err != nil {
		return c, err
	}
	c.keep = func(ctx context.Context) error { return cfg.Store.Maintain(ctx, outbox) }
	c.left = func() (int64, bool, error) {
		all, err := cfg.Store.Status(ctx)
		for _, o := range all {
			if o.Outbox == outbox && len(o.Subscriptions) > 0 {
				return o.Subscriptions[0].Backlog, c.lateAt.IsZero(), err
			}
		}
		return 0, false, err
	}
	c.from(ctx, src, cfg.Batch)
	return c, nil
}

// plainStore is the store on plain tables with the margin that the others have.
func (cfg ChurnConfig) plainStore(ctx context.Context) (driver.Store, error) {
	if s := cfg.mysql(); s != nil {
		return mysql.Open(cfg.URL, mysql.Options{Schema: cfg.Schema, Engine: s.Engine(), Margin: cfg.Margin, Sweep: cfg.sweep()})
	}
	return portable.Open(ctx, cfg.URL, portable.Options{Schema: cfg.Schema, Margin: cfg.Margin, Sweep: cfg.sweep()})
}

// from consumes the messages of a source, and settles them as delivered.
func (c *churner) from(ctx context.Context, src driver.Source, batch int) {
	c.closers = append(c.closers, src.Close)
	c.renew = src.Renew
	c.consume = func() (n int, err error) {
		for n < batch {
			b, err := src.Fetch(ctx, driver.Limit{Messages: batch - n, Bytes: 8 << 20})
			if err != nil || len(b.Messages) == 0 {
				return n, err
			}
			if err := src.Settle(ctx, b.Number, driver.Settled{Batch: b}); err != nil {
				return n, err
			}
			n += len(b.Messages)
			if isLate := func(m penstock.Message) bool { return string(m.Payload) == "late" }; slices.ContainsFunc(b.Messages, isLate) {
				c.lateAt = time.Now()
			}
		}
		return n, nil
	}
}

// beginLate inserts the late row, in a transaction that stays open.
func (c *churner) beginLate(ctx context.Context) error {
	s, err := c.connect(ctx)
	if err != nil {
		return err
	}
	c.closers = append(c.closers, func(context.Context) error {
		s.close() // rolls back what is open
		return nil
	})
	c.late = s
	if err := s.say("begin"); err != nil {
		return err
	}
	return s.do("inserting the late row", c.sql[c.insertLate])
}

// adopt opens a table of the run for Penstock, as one reader in order. forget closes it
// and removes what Penstock remembers of it: the schema may be there before and after.
func (d Setup) adopt(ctx context.Context, table string, c adopt.Config) (t *adopt.Table, forget func(context.Context) error, err error) {
	c.Table = pgx.Identifier{d.Schema, table}.Sanitize()
	t, err = adopt.Open(ctx, adopt.Options{URL: d.URL, Schema: d.Schema, Subscription: table, Config: c})
	if err != nil {
		return nil, nil, err
	}
	return t, func(ctx context.Context) error {
		err := t.Drop(context.WithoutCancel(ctx))
		if errors.Is(err, penstock.ErrNoSubscription) { // it was never made
			err = nil
		}
		return errors.Join(err, t.Close())
	}, nil
}

// adoptedTable is the published table, adopted.
func (cfg ChurnConfig) adoptedTable(ctx context.Context) (*churner, error) {
	name := cfg.Name + "_churn_adopted"
	c, err := cfg.table(ctx, "the adopted table", name)
	if err != nil {
		return c, err
	}
	c.size = "size_adopted"
	table, forget, err := cfg.adopt(ctx, name, adopt.Config{Preset: "message", Margin: cfg.Margin, Sweep: cfg.sweep()})
	if err != nil {
		return c, err
	}
	c.closers = append(c.closers, forget)
	src, err := table.Subscribe(ctx, driver.Subscribe{Holder: holder})
	if err != nil {
		return c, err
	}
	c.from(ctx, src, cfg.Batch)
	return c, nil
}
