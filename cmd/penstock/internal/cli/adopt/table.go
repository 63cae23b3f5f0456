package adopt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/descriptor"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// Flags describe an adopted table without a configuration file. They are those of relay.
type Flags struct{ Preset, Table string }

func (f *Flags) Add(flags *pflag.FlagSet) {
	flags.StringVar(&f.Preset, "adopt", "", "without a configuration file: the subscription is of an adopted table of this `kind`: "+strings.Join(adopted.PresetNames(), ", "))
	flags.StringVar(&f.Table, "table", "", "with --adopt: its `table` (default: named like the subscription)")
}

// Subscription is a subscription over an adopted table.
type Subscription struct {
	Name   string
	Config adopted.Config
	flags  string // flags of a command line that describe it; empty if a file does
}

// Named is the subscription of that name as the flags describe it, or nil without --adopt.
func (f *Flags) Named(name string) (*Subscription, error) {
	if f.Preset == "" {
		if f.Table != "" {
			return nil, terminal.Usage(errors.New("--table goes with --adopt: name the kind of table"))
		}
		return nil, nil
	}
	c, err := Described(f.Preset, cmp.Or(f.Table, name), 0)
	if err != nil {
		return nil, err
	}
	said := " --adopt " + shell.Word(f.Preset)
	if f.Table != "" {
		said += " --table " + shell.Word(f.Table)
	}
	return &Subscription{Name: cmp.Or(name, c.Table), Config: c, flags: said}, nil
}

// Described is the table that flags describe.
func Described(preset, table string, workers int) (adopted.Config, error) {
	c := adopted.Config{Preset: preset, Table: table, Workers: workers}
	c.SetDefaults()
	if err := c.Validate(); err != nil {
		return c, terminal.Usage(fmt.Errorf("--adopt: %w", err))
	}
	return c, nil
}

// Configured are the subscriptions of the configuration file: that of --config, or ./penstock.yaml
// unless --database-url names another database.
func Configured(a *cli.App) (all []Subscription, err error) {
	if a.ConfigFile == "" && a.DatabaseURL != "" {
		return nil, nil
	}
	cfg, err := a.LoadConfig()
	if err != nil && a.ConfigFile == "" {
		// The user has not asked for the file, and most verbs do not need it.
		fmt.Fprintln(a.Stderr, "penstock: adopted tables are not looked at: "+terminal.OneLine(err.Error()))
		return nil, nil
	}
	if err != nil || cfg == nil {
		return nil, err
	}
	for _, s := range cfg.Subscriptions {
		if s.Adopt != nil {
			all = append(all, Subscription{Name: s.Name, Config: s.Adopt.Config})
		}
	}
	return all, nil
}

// Find finds the subscription of an adopted table for a verb: that of the flags, or the one with
// the name in the configuration file. It returns nil if there is none.
func Find(ctx context.Context, a *cli.App, f *Flags, name string) (*Table, error) {
	found, err := f.Named(name)
	if err == nil && found == nil {
		var all []Subscription
		if all, err = Configured(a); err == nil {
			for i := range all {
				if all[i].Name == name {
					found = &all[i]
				}
			}
		}
	}
	if err != nil || found == nil {
		return nil, err
	}
	table, err := Open(ctx, a, found)
	if err == nil {
		a.Later(table.Close)
	}
	return table, err
}

// OpenAll opens the tables that the configuration adopts, until the verb ends.
func OpenAll(ctx context.Context, a *cli.App) (all []*Table, err error) {
	subscriptions, err := Configured(a)
	for i := range subscriptions {
		table, err := Open(ctx, a, &subscriptions[i])
		if err != nil {
			return nil, err
		}
		a.Later(table.Close)
		all = append(all, table)
	}
	return all, err
}

func Open(ctx context.Context, a *cli.App, of *Subscription) (*Table, error) {
	url, schema, err := a.Database()
	if err != nil {
		return nil, err
	}
	a.Stderr.Hide(url)
	if database := drivers.NoTables(url); database != "" {
		return nil, terminal.Usage(errors.New("tables are adopted in PostgreSQL and MariaDB, and this database is " + database))
	}
	table, err := drivers.OpenTable(ctx, url, schema, of.Name, of.Config, a.Logger())
	if err != nil {
		return nil, terminal.Usage(fmt.Errorf("subscription %q: %w", of.Name, err))
	}
	return &Table{Adopted: table, Subscription: *of}, nil
}

// Table shows an adopted table as a store: with one outbox, which is the table, and its one
// subscription.
type Table struct {
	descriptor.Adopted
	Subscription
}

func (s *Table) Status(ctx context.Context) ([]admin.OutboxStatus, error) {
	status, err := s.Adopted.Status(ctx)
	return []admin.OutboxStatus{{Outbox: s.Config.Table, Subscriptions: []admin.SubscriptionStatus{status}}}, err
}

func (s *Table) ParkedKeys(ctx context.Context, _, _ string, limit int) ([]admin.ParkedKey, error) {
	return s.Adopted.ParkedKeys(ctx, limit)
}

func (s *Table) RetryParked(ctx context.Context, _, _ string, keys ...string) (int, error) {
	return s.Adopted.RetryParked(ctx, keys...)
}

// GiveUpParked refuses: the row is the application's.
func (s *Table) GiveUpParked(context.Context, string, string, int64, string) (int, error) {
	return 0, penstock.WithHint(errors.New("a row of an adopted table cannot be given up"), "delete the row, or lower max_attempts in the configuration of %s and start its relay again", s.Name)
}

// Argument names the subscription on a command line.
func (s *Table) Argument() string { return shell.Word(s.Name) + s.flags }

// About is the package's function for this subscription.
func (s *Table) About(err error, doing string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, penstock.ErrNoSubscription):
		return fmt.Errorf("subscription %q of table %s: %w", s.Name, shell.Visible(s.Config.Table), penstock.ErrNoSubscription)
	case doing == "":
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// WithOutboxOrTable calls of for the store if it has an outbox of that name. Otherwise, or if the
// flags describe a table, it calls ofTable for the subscription with the name.
func WithOutboxOrTable(ctx context.Context, a *cli.App, f *Flags, name string, of func(driver.Store) error, ofTable func(*Table) error) error {
	var missing error
	if f.Preset == "" {
		store, err := a.OpenStore(ctx)
		if err != nil {
			return err
		}
		if missing = of(store); !errors.Is(missing, penstock.ErrNoOutbox) {
			return missing
		}
	}
	table, err := Find(ctx, a, f, name)
	switch {
	case err != nil:
		return err
	case table == nil:
		return missing
	}
	return table.About(ofTable(table), "")
}

// Drop drops the subscription of an adopted table, which has no outbox.
func Drop(ctx context.Context, a *cli.App, f *Flags, args []string, leave cli.Consent) error {
	if len(args) > 1 {
		return terminal.Usage(errors.New("--adopt is given with an outbox: give the subscription's name alone"))
	}
	table, err := Find(ctx, a, f, args[0])
	if err != nil {
		return err
	}
	if table == nil {
		return dropRemembered(ctx, a, args[0], leave)
	}
	s, err := table.Adopted.Status(ctx)
	if _, ok := errors.AsType[*penstock.FieldError](err); ok { // the mapping, or the table, has changed
		return dropRemembered(ctx, a, table.Name, leave)
	}
	if err != nil {
		return table.About(err, "reading the status")
	}
	return dropAdoption(ctx, a, table.Config.Table, s, leave, func() error { return table.About(table.Drop(ctx), "dropping the subscription") })
}

// dropRemembered drops a subscription of an adopted table that no configuration names any more, or
// that it names differently.
func dropRemembered(ctx context.Context, a *cli.App, name string, leave cli.Consent) error {
	url, schema, err := a.Database()
	if err != nil {
		return err
	}
	a.Stderr.Hide(url)
	if drivers.NoTables(url) == "" {
		known, err := drivers.Remembers(ctx, url, schema)
		if err != nil {
			return fmt.Errorf("reading the subscriptions of adopted tables: %w", err)
		}
		defer known.Close()
		all, err := known.Adoptions(ctx)
		if err != nil {
			return fmt.Errorf("reading the subscriptions of adopted tables: %w", err)
		}
		for _, s := range all {
			if s.Status.Subscription == name {
				return dropAdoption(ctx, a, s.Table, s.Status, leave, func() error { return known.DropAdoption(ctx, name) })
			}
		}
	}
	return terminal.Misuse(fmt.Errorf("no subscription %q adopts a table: give OUTBOX and NAME, or --adopt", name))
}

// dropAdoption asks, and drops.
func dropAdoption(ctx context.Context, a *cli.App, table string, s admin.SubscriptionStatus, leave cli.Consent, drop func() error) error {
	name := s.Subscription
	lost := fmt.Sprintf("its record of %s and %s", terminal.Plural(s.Parked, "parked row"), terminal.Plural(s.DeadLetters, "dead letter"))
	warning := fmt.Sprintf("This drops subscription %s of table %s: %s is lost. The rows stay as they are.", shell.Visible(name), shell.Visible(table), lost)
	if cli.IsHeld(&s, time.Now()) {
		fmt.Fprintf(a.Stderr, "penstock: a relay runs it (%s) and will make it anew: stop it first\n", shell.Visible(s.Holder))
	}
	if err := a.ConfirmName(ctx, leave, warning, name); err != nil {
		return err
	}
	if err := drop(); err != nil {
		return err
	}
	return a.Tell(map[string]any{"table": table, "subscription": name, "backlog": s.Backlog, "parked": s.Parked, "dead_letters": s.DeadLetters},
		"Subscription %s of table %s is gone; the table is as it was.\n", shell.Visible(name), shell.Visible(table))
}
