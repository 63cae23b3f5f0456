package adopt_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres/adopt"
)

const flagTable = `create type mood as enum ('new', 'again', 'done');
	create table flags (id bigint primary key generated always as identity, data text not null, sent boolean not null default false,
		state int not null default 0, mood mood not null default 'new', word varchar(4) not null default 'new')`

func flagConfig(status string, delivered adopt.Value, pending ...adopt.Value) adopt.Config {
	return adopt.Config{Table: "flags", Columns: adopt.Columns{ID: "id", Payload: "data", Status: status}, Status: adopt.Status{Pending: pending, Delivered: delivered}}
}

// TestFailedStartLeavesNothing: neither a subscription that would keep the table from the
// corrected one, under whatever name, nor a lease.
func TestFailedStartLeavesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(flagTable)
	for name, c := range map[string]struct {
		config      adopt.Config
		field, says string
	}{
		"a boolean, defaults":       {flagConfig("sent", ""), "status.delivered", "write true or false"},
		"a boolean, pending":        {flagConfig("sent", "true", "new"), "status.pending[0]", "write true or false"},
		"a number":                  {flagConfig("state", "1", "0", "new"), "status.pending[1]", "a whole number"},
		"a number, too large":       {flagConfig("state", "3000000000", "0"), "status.delivered", "a whole number"},
		"an enum":                   {flagConfig("mood", "sent", "new"), "status.delivered", "new, again, done"},
		"a text that is too long":   {flagConfig("word", "delivered", "new"), "status.delivered", "4 characters"},
		"the same in other letters": {flagConfig("sent", "f", "false"), "status.delivered", "as pending rows have it"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.openAs("wrong", c.config).Subscribe(f.Ctx, driver.Subscribe{Holder: "test"})
			var bad *penstock.FieldError
			if !errors.As(err, &bad) || bad.Field != c.field || !strings.Contains(err.Error(), c.says) {
				t.Errorf("want a complaint about %s with %q, got %v", c.field, c.says, err)
			}
			if n := f.Number("select (select count(*) from penstock._adopt_subscription) + (select count(*) from penstock._adopt_log)"); n != 0 {
				t.Errorf("it left %d rows", n)
			}
		})
	}
	f.Exec("insert into flags (data) values ('one')")
	src := f.subscribe(f.openAs("corrected", flagConfig("sent", "true", "false")))
	b := f.fetch(src)
	f.want(b, "one")
	f.settle(src, b)
	if n := f.Number("select count(*) from flags where sent"); n != 1 {
		t.Errorf("%d rows are marked", n)
	}
}

// TestOneSubscriptionInAllSpellings: who has not chosen a name has the table's, and that
// may be written with its schema or without.
func TestOneSubscriptionInAllSpellings(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	f.insert("k", "1")
	spelled := func(table string) *adopt.Table {
		c := keyedConfig()
		c.Table = table
		return f.openAs(table, c)
	}
	src := f.subscribe(spelled("shop"))
	f.settle(src, f.fetch(src), parked(1, 0))
	for _, name := range []string{"public.shop", `"public"."shop"`, `"shop"`} {
		table := spelled(name)
		var held *penstock.HeldError
		if _, err := table.Subscribe(f.Ctx, driver.Subscribe{Holder: "another"}); !errors.As(err, &held) {
			t.Errorf("%s: while shop is held: %v", name, err)
		}
		if status, err := table.Status(f.Ctx); err != nil || status.Parked != 1 || status.Subscription != "shop" {
			t.Errorf("%s: status %+v, %v", name, status, err)
		}
		if keys, err := table.ParkedKeys(f.Ctx, 10); err != nil || len(keys) != 1 {
			t.Errorf("%s: parked %v, %v", name, keys, err)
		}
	}
	f.Must(src.Close(f.Ctx))
	src = f.subscribe(spelled("public.shop"))
	f.want(f.fetch(src), "1") // what the other spelling has parked
	if n := f.Number("select count(*) from penstock._adopt_subscription"); n != 1 {
		t.Errorf("there are %d subscriptions", n)
	}

	// A name that was chosen means no other subscription.
	var bad *penstock.FieldError
	if _, err := f.open(keyedConfig()).Subscribe(f.Ctx, driver.Subscribe{Holder: "test"}); !errors.As(err, &bad) || bad.Field != "delivered" || !strings.Contains(err.Error(), `"shop"`) {
		t.Errorf("a subscription of another name: %v", err)
	}
	// Nor does the name of a table in another schema.
	f.Exec("create schema elsewhere; create table elsewhere.shop (like shop including all)")
	f.subscribe(spelled("elsewhere.shop"))
	if n := f.Number("select count(*) from penstock._adopt_subscription"); n != 2 {
		t.Errorf("there are %d subscriptions", n)
	}
}

// TestSubscriptionIsDroppedByName, whatever has become of the table and of the mapping.
func TestSubscriptionIsDroppedByName(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	f.insert("k", "1")
	src := f.subscribe(f.openAs("mails", keyedConfig()))
	f.settle(src, f.fetch(src), parked(1, 0))
	f.Exec("drop table shop")
	options := adopt.Options{URL: f.URL, Subscription: "mails"}
	all, err := adopt.Subscriptions(f.Ctx, options)
	f.Must(err)
	if len(all) != 1 || all[0].Table != "public.shop" || all[0].Status.Subscription != "mails" || all[0].Status.Parked != 1 || all[0].Status.Holder != "test" {
		t.Errorf("subscriptions %+v", all)
	}
	f.Must(adopt.DropSubscription(f.Ctx, options))
	if err := src.Renew(f.Ctx); !errors.Is(err, penstock.ErrFenced) {
		t.Errorf("its reader renews: %v", err)
	}
	if all, err := adopt.Subscriptions(f.Ctx, options); err != nil || len(all) != 0 {
		t.Errorf("left: %+v, %v", all, err)
	}
	if err := adopt.DropSubscription(f.Ctx, options); !errors.Is(err, penstock.ErrNoSubscription) {
		t.Errorf("once more: %v", err)
	}
}
