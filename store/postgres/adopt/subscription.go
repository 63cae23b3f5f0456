package adopt

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/descriptor"
)

// found is a subscription that there is.
type found struct {
	id           int64
	name, source string
}

// find looks the subscription up: by its name or, because the default name is the table's, by any
// spelling of that. "t" and "public.t" are one subscription, called as it was first. If there is none, its id is 0 and its
// name the one that it will get.
func (t *Table) find(ctx context.Context, q querier) (found, error) {
	var table *string
	if t.config.Table != "" {
		quoted := t.config.TableIdentifier().Sanitize()
		table = &quoted
	}
	rows, _ := q.Query(ctx, t.own("find"), t.name, table)
	there := found{name: t.name}
	var f found
	var schema, relation *string
	_, err := pgx.ForEachRow(rows, []any{&f.id, &f.name, &f.source, &schema, &relation}, func() error {
		if there.id == 0 && (f.name == t.name || relation != nil && spells(f.name, *schema, *relation) && spells(t.name, *schema, *relation)) {
			there = f
		}
		return nil
	})
	return there, err
}

// subscription is the id of a subscription that has to be there.
func (t *Table) subscription(ctx context.Context) (id int64, err error) {
	f, err := t.find(ctx, t.pool)
	if err == nil && f.id == 0 {
		err = penstock.WithHint(fmt.Errorf("%w: %q has not run yet", penstock.ErrNoSubscription, t.name), "start its relay")
	}
	return f.id, t.explain(err)
}

// spells reports whether name is a way to write that table.
func spells(name, schema, table string) bool {
	id, err := adopted.SplitTable("table", name)
	return err == nil && id[len(id)-1] == table && (len(id) == 1 || id[0] == schema)
}

// Subscription is Penstock's knowledge of one without its configuration.
type Subscription = descriptor.Remembered

// Subscriptions returns every subscription over an adopted table, by name. Of the options
// only the database is looked at.
func Subscriptions(ctx context.Context, o Options) ([]Subscription, error) {
	t, err := connect(ctx, o)
	if err != nil {
		return nil, err
	}
	defer t.pool.Close()
	rows, _ := t.pool.Query(ctx, t.own("subscriptions"))
	there, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f found, err error) {
		return f, row.Scan(&f.id, &f.name, &f.source)
	})
	all := make([]Subscription, len(there))
	for i, f := range there {
		all[i] = Subscription{Table: f.source, Status: admin.SubscriptionStatus{Subscription: f.name}}
		if err == nil {
			err = t.remembered(ctx, f.id, &all[i].Status)
		}
	}
	return all, t.explain(err)
}

// DropSubscription is Drop by the name alone: the table may be gone, or mapped in another way now.
// Of the options the database and Subscription are looked at.
func DropSubscription(ctx context.Context, o Options) error {
	t, err := connect(ctx, o)
	if err != nil {
		return err
	}
	defer t.pool.Close()
	return t.Drop(ctx)
}
