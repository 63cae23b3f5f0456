package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var outboxCases = slices.Concat(
	named("Outbox", outboxCreateTwice, outboxCreateFromSeveralAtOnce, outboxOddNamesStayApart,
		outboxDrop, outboxDropUnderAReader),
	needing(Features{Versions: true}, named("Outbox", outboxSchemaOfAnotherVersion, outboxSchemaThatIsNotWhole)),
	[]testCase{
		{Name: "NotMigrated", Run: notMigrated, Other: true},
		{Name: "MigrateTwice", Run: migrateTwice, Other: true},
		{Name: "MigrateFromSeveralAtOnce", Run: migrateAtOnce, Other: true},
	},
)

// oddNames need quoting, look alike, or look like what a store may derive from
// another name.
var oddNames = []string{
	"orders2", "Orders2", "ORDERS2", "orders2 ", " orders2", "orders2_seq", "orders2_slot", "orders2_0", "orders2_1", "orders2_cursor", "orders2.p0",
	`Order"s; drop table x--`, `'`, `"`, `""`, `\`, "%s%d", "$1", "a.b", "../x", "select", "user", "cursor_log", "penstock", "pg_class", "sqlite_x",
	"naïve", "nai\u0308ve", "日本語", "🜁", "new\nline", "\t", " ", "-", "0", "{table}", "{schema}", "orders2~1", "a`b'c\"d?", `x\'; -- `, "%2e;",
	strings.Repeat("x", 47) + "y", strings.Repeat("x", 47) + "z", strings.Repeat("日", 15) + "abc", strings.Repeat("日", 15) + "abd",
}

func notMigrated(e *env) {
	_, subscribed := e.Store.Subscribe(e.ctx, e.request(driver.Subscribe{}))
	_, status := e.Store.Status(e.ctx)
	for what, err := range map[string]error{
		"CreateOutbox": e.Store.CreateOutbox(e.ctx, outbox), "Publish": e.Store.Publish(e.ctx, outbox, message("", "m")), "Subscribe": subscribed, "Status": status,
	} {
		e.MustBe(err, penstock.ErrNotMigrated, what+" before Migrate")
		hinted, _ := errors.AsType[*penstock.HintError](err)
		if hinted == nil || !strings.Contains(hinted.Hint, "penstock migrate") || !strings.Contains(hinted.Hint, "call Migrate") {
			e.Errorf("%s before Migrate: %v, want the command and the call that migrate", what, err)
		}
	}
	e.Must(e.Store.Migrate(e.ctx), "Migrate")
	e.Must(e.Store.CreateOutbox(e.ctx, outbox), "CreateOutbox")
	e.publish(message("", "m"))
	e.read().want("m")
}

func migrateTwice(e *env) {
	e.Must(e.Store.Migrate(e.ctx), "Migrate")
	e.Must(e.Store.Migrate(e.ctx), "Migrate again")
	e.Must(e.Store.CreateOutbox(e.ctx, outbox), "CreateOutbox")
	r := e.read()
	e.publish(messages("m", 2)...)
	e.Must(e.Store.Migrate(e.ctx), "Migrate in use")
	e.Must(e.Another(e).Migrate(e.ctx), "Migrate by another")
	r.settle(r.want("m0", "m1")...)
	r.again().want()
}

func migrateAtOnce(e *env) {
	stores := []driver.Store{e.Store, e.Another(e), e.Another(e), e.Another(e)}
	e.Must(suite.Concurrently(len(stores), func(i int) error { return stores[i].Migrate(e.ctx) }), "Migrate by several at once")
	e.Must(e.Store.CreateOutbox(e.ctx, outbox), "CreateOutbox")
	e.publish(message("", "m"))
	e.read().want("m")
}

func outboxCreateTwice(e *env) {
	e.publish(message("", "m"))
	e.MustBe(e.Store.CreateOutbox(e.ctx, outbox), penstock.ErrOutboxExists, "CreateOutbox again")
	e.MustBe(e.Another(e).CreateOutbox(e.ctx, outbox), penstock.ErrOutboxExists, "CreateOutbox by another")
	e.read().want("m")
}

func outboxCreateFromSeveralAtOnce(e *env) {
	stores := []driver.Store{e.Store, e.Another(e), e.Another(e), e.Another(e)}
	var made atomic.Int32
	e.Must(suite.Concurrently(len(stores), func(i int) error {
		err := stores[i].CreateOutbox(e.ctx, "new")
		if err == nil {
			made.Add(1)
		} else if !errors.Is(err, penstock.ErrOutboxExists) {
			return err
		}
		return nil
	}), "CreateOutbox by several at once")
	suite.Equal(e, made.Load(), 1, "those that made the outbox")
}

func outboxOddNamesStayApart(e *env) {
	for _, name := range oddNames {
		e.Must(e.Store.CreateOutbox(e.ctx, name), fmt.Sprintf("CreateOutbox(%q)", name))
	}
	tx := e.begin()
	for i, name := range oddNames {
		e.Must(tx.Tx.Publish(e.ctx, name, message("", fmt.Sprint("m", i))), fmt.Sprintf("Publish to %q", name))
	}
	tx.Commit()
	for i, name := range oddNames {
		e.Must(e.Store.Maintain(e.ctx, name), fmt.Sprintf("Maintain of %q", name))
		r := e.subscribe(driver.Subscribe{Outbox: name})
		r.deadLetter("no", r.want(fmt.Sprint("m", i))...)
		e.Must(e.Store.Maintain(e.ctx, name), fmt.Sprintf("Maintain of %q", name))
		deadLetters := e.deadLetters(r)
		e.wantPayloads(deadMessages(deadLetters), fmt.Sprint("m", i))
		e.retry(r, deadLetters...)
		r.settle(r.want(fmt.Sprint("m", i))...)
		r.close()
	}
	names := []string{outbox}
	for _, o := range e.status() {
		if o.Outbox != outbox {
			names = append(names, o.Outbox)
		}
	}
	slices.Sort(names)
	suite.Equal(e, names, slices.Sorted(slices.Values(append(oddNames, outbox))), "outboxes of the status")
	// Dropping one leaves the others alone.
	for i, name := range oddNames {
		if i%2 == 0 {
			e.Must(e.Store.DropOutbox(e.ctx, name), fmt.Sprintf("DropOutbox(%q)", name))
		}
	}
	for i, name := range oddNames {
		err := e.Store.Publish(e.ctx, name, message("", "again"))
		if i%2 == 0 {
			e.MustBe(err, penstock.ErrNoOutbox, fmt.Sprintf("Publish to %q, which was dropped", name))
			continue
		}
		e.Must(err, fmt.Sprintf("Publish to %q", name))
		e.subscribe(driver.Subscribe{Outbox: name}).want("again")
	}
	e.read().want()
}

func outboxDrop(e *env) {
	e.Must(e.Store.CreateOutbox(e.ctx, "other"), "CreateOutbox")
	e.Must(e.Store.Publish(e.ctx, "other", message("", "other")), "Publish")
	other := e.subscribe(driver.Subscribe{Outbox: "other"})
	r := e.read()
	e.publish(messages("m", 3)...)
	r.deadLetter("no", r.fetch(two))
	r.close()

	e.Must(e.Store.DropOutbox(e.ctx, outbox), "DropOutbox")
	e.MustBe(e.Store.DropOutbox(e.ctx, outbox), penstock.ErrNoOutbox, "DropOutbox again")
	e.MustBe(e.Store.Publish(e.ctx, outbox, message("", "m")), penstock.ErrNoOutbox, "Publish to a dropped outbox")
	if all := e.status(); len(all) != 1 || all[0].Outbox != "other" {
		e.Errorf("status shows %+v, want only the other outbox", all)
	}

	e.Must(e.Store.CreateOutbox(e.ctx, outbox), "CreateOutbox of the same name")
	suite.Equal(e, len(e.outboxStatus(outbox).Subscriptions), 0, "subscriptions of the new outbox")
	r = e.read()
	r.want()
	e.wantDeadLetters(r, 0)
	e.publish(message("", "new"))
	r.settle(r.want("new")...)
	other.want("other")
}

// A reader of a dropped outbox learns of it, and does no harm to a new outbox of the same name, in
// its own process or in another.
func outboxDropUnderAReader(e *env) {
	stores := []driver.Store{e.Store, e.Another(e)}
	for i, s := range stores {
		old := e.subscribeOn(s, driver.Subscribe{Subscription: fmt.Sprint("sub", i)})
		e.publish(messages("old", 2)...)
		b := old.fetch(plenty)
		e.Must(e.Store.DropOutbox(e.ctx, outbox), "DropOutbox")
		e.Fails(old.Renew(e.ctx), "Renew after DropOutbox")
		e.Must(e.Store.CreateOutbox(e.ctx, outbox), "CreateOutbox of the same name")
		e.Must(s.Publish(e.ctx, outbox, messages("new", 2)...), "Publish by a store that knew the old outbox")
		r := e.subscribe(driver.Subscribe{Subscription: fmt.Sprint("sub", i)})
		e.Fails(old.Settle(e.ctx, delivered(b)...), "Settle of a batch from the dropped outbox")
		if b, err := old.Fetch(e.ctx, plenty); err == nil && len(b.Messages) > 0 {
			e.Errorf("Fetch by the reader of the dropped outbox returned %s", brief(payloads(b.Messages)))
		}
		_ = old.Close(e.ctx)
		e.MustBe(suite.Err(e.Store.Subscribe(e.ctx, e.request(r.req))), penstock.ErrHeld, "Subscribe after the old reader's Close")
		r.settle(r.want("new0", "new1")...)
		r.again().want()
	}
}
