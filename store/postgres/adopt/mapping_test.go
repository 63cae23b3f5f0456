package adopt_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres/adopt"
)

func TestMappingThatDoesNotFit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	f.Exec(`create table loose (id int, data text);
		create table nullable (id int unique, data text);
		create table partial (id int not null, data text); create unique index on partial (id) where data is null;
		create view seen as select * from shop;
		create table small (id bigint, key text);
		create table other (like shop); alter table other alter column attempts type bigint;
		create table stranger (id int primary key, data text, at timestamptz)`)
	role := strings.ReplaceAll(f.schemaName(), "penstock_test", "adopt_role")
	f.Exec("create role " + role + " login")
	f.Cleanup(func() { _, _ = f.Conn.Exec(f.Ctx, "drop owned by "+role+"; drop role "+role) })
	f.Exec("select penstock.grant_adopt('" + role + "')")
	f.Exec("grant select on shop, stranger to " + role)
	asRole := strings.Replace(f.URL, "postgres@", role+"@", 1)

	with := func(change func(*adopt.Config)) adopt.Config {
		c := keyedConfig()
		change(&c)
		return c
	}
	simple := func(table string) adopt.Config {
		return adopt.Config{Table: table, Columns: adopt.Columns{ID: "id", Payload: "data"}, Delivered: adopt.Delete}
	}
	for name, c := range map[string]struct {
		config      adopt.Config
		role        bool
		field, says string
	}{
		"no table":              {config: simple("nothing"), field: "table", says: "nothing"},
		"no schema":             {config: simple("nowhere.shop"), field: "table", says: "nowhere"},
		"a view":                {config: simple("seen"), field: "table", says: "not a table"},
		"missing column":        {config: with(func(c *adopt.Config) { c.Columns.Payload = "body" }), field: "columns.payload", says: "its columns are id, key"},
		"missing in template":   {config: with(func(c *adopt.Config) { c.Topic = "x.{kind}" }), field: "topic", says: "kind"},
		"payload of wrong type": {config: with(func(c *adopt.Config) { c.Columns.Payload = "attempts" }), field: "columns.payload", says: "type integer"},
		"headers of wrong type": {config: with(func(c *adopt.Config) { c.Columns.Headers = "payload" }), field: "columns.headers", says: "jsonb"},
		"mark of wrong type":    {config: with(func(c *adopt.Config) { c.Columns.ProcessedAt = "status" }), field: "columns.processed_at", says: "timestamp"},
		"id of wrong type":      {config: with(func(c *adopt.Config) { c.Columns.ID = "headers"; c.Columns.Headers = ""; c.Columns.Order = nil }), field: "columns.id", says: "uuid"},
		"no unique id":          {config: simple("loose"), field: "columns.id", says: "not null"},
		"id may be null":        {config: simple("nullable"), field: "columns.id", says: "not null"},
		"unique in part":        {config: simple("partial"), field: "columns.id", says: "create unique index concurrently"},
		"archive too small":     {config: with(func(c *adopt.Config) { c.Archive = "small" }), field: "archive", says: `no column "topic"`},
		"archive of other type": {config: with(func(c *adopt.Config) { c.Archive = "other" }), field: "archive", says: "bigint and not integer"},
		"no archive":            {config: with(func(c *adopt.Config) { c.Archive = "gone" }), field: "archive", says: "gone"},
		"may not update":        {config: keyedConfig(), role: true, field: "table", says: "grant update"},
		"may not delete":        {config: simple("stranger"), role: true, field: "table", says: "grant delete"},
		"may not select":        {config: simple("loose"), role: true, field: "columns", says: "grant select"},
	} {
		t.Run(name, func(t *testing.T) {
			url := f.URL
			if c.role {
				url = asRole
			}
			table, err := adopt.Open(f.Ctx, adopt.Options{URL: url, Subscription: "sub", Config: c.config, Log: quiet()})
			f.Must(err)
			defer func() { _ = table.Close() }()
			err = table.Check(f.Ctx)
			var bad *penstock.FieldError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.says) || bad.Hint == "" || !strings.HasPrefix(bad.Field, c.field) && c.says != "grant select" {
				t.Errorf("want a complaint about %s with %q, got %v", c.field, c.says, err)
			}
			if _, again := table.Subscribe(f.Ctx, driver.Subscribe{Holder: "test"}); again == nil || again.Error() != err.Error() {
				t.Errorf("Subscribe says %v", again)
			}
		})
	}
}

// The grant is a whole statement: with the schema, and the role that lacks it.
func TestARoleWithoutTheRightsIsToldTheGrant(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	role := strings.ReplaceAll(f.schemaName(), "penstock_test", "adopt_denied")
	f.Exec("create role " + role + " login; grant usage on schema penstock to " + role + "; grant all on shop to " + role)
	f.Cleanup(func() { _, _ = f.Conn.Exec(f.Ctx, "drop owned by "+role+"; drop role "+role) })
	table, err := adopt.Open(f.Ctx, adopt.Options{URL: strings.Replace(f.URL, "postgres@", role+"@", 1), Subscription: "sub", Config: keyedConfig(), Log: quiet()})
	f.Must(err)
	defer func() { _ = table.Close() }()
	_, err = table.DeadLetters(f.Ctx, admin.DeadLetterQuery{})
	grant := `select "penstock"."grant_adopt"('` + role + `')`
	if err == nil || !strings.Contains(err.Error(), grant) {
		t.Fatalf("got %v, want %s", err, grant)
	}
	f.Exec(grant)
	if _, err = table.DeadLetters(f.Ctx, admin.DeadLetterQuery{}); !errors.Is(err, penstock.ErrNoSubscription) {
		t.Errorf("after the grant: %v", err)
	}
}

func (f *fixture) schemaName() (name string) {
	f.Must(f.Conn.QueryRow(f.Ctx, "select current_database()").Scan(&name))
	return name
}

func TestNotMigrated(t *testing.T) {
	f := &fixture{postgrestest.On(t, testserver.Database(t, testserver.PostgresURL(t)))}
	table := f.open(keyedConfig())
	if err := table.Check(f.Ctx); !errors.Is(err, penstock.ErrNotMigrated) || !strings.Contains(err.Error(), "penstock migrate") {
		t.Errorf("got %v", err)
	}
	if _, err := table.DeadLetters(f.Ctx, admin.DeadLetterQuery{}); !errors.Is(err, penstock.ErrNotMigrated) {
		t.Errorf("got %v", err)
	}
}

func TestURLIsNotRepeated(t *testing.T) {
	_, err := adopt.Open(t.Context(), adopt.Options{URL: "postgres://u:se/cret@h:x/d", Subscription: "s", Config: keyedConfig()})
	var bad *penstock.FieldError
	if !errors.As(err, &bad) || strings.Contains(err.Error(), "cret") {
		t.Errorf("got %v", err)
	}
}
