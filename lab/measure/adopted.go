package measure

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres/adopt"
)

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

// adopted has Penstock process the table as the last rung has it.
func (p *processor) adopted(ctx context.Context) (rate float64, err error) {
	err = p.withTable(ctx, true, func(keeper *session) (failed error) {
		table, forget, err := p.adopt(ctx, p.table, adopt.Config{Preset: "dotnet"})
		if err != nil {
			return err
		}
		defer func() { failed = errors.Join(failed, forget(ctx)) }()
		return p.withQueue(ctx, func(q *queue) error {
			p.progress("the relay drains the adopted table")
			var processed int
			rate, processed, err = p.drain(ctx, q.sink, func(ctx context.Context) (driver.Source, error) {
				return table.Subscribe(ctx, driver.Subscribe{Holder: holder})
			}, nil)
			if err != nil {
				return err
			}
			if err := p.marked(keeper, "the adopted table", processed); err != nil {
				return err
			}
			return p.check(ctx, "the adopted table", q, processed)
		})
	})
	return rate, err
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
