package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres/adopt"
)

// adoptFlags name a table that is adopted without a configuration file, as the flags
// of relay do.
type adoptFlags struct{ preset, table string }

func (f *adoptFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.preset, "adopt", "", "the subscription is of an adopted table of this kind, without a configuration file: "+strings.Join(adopt.PresetNames(), ", "))
	flags.StringVar(&f.table, "table", "", "with --adopt: its table (default: named like the subscription)")
}

// adoption is a subscription over an adopted table.
type adoption struct {
	name   string
	config adopt.Config
	flags  string // that say so on a command line; empty if a file does
}

// named is the subscription of that name as the flags describe it, nil without
// --adopt.
func (f *adoptFlags) named(name string) (*adoption, error) {
	if f.preset == "" {
		if f.table != "" {
			return nil, usage(errors.New("--table goes with --adopt: say what kind of table it is"))
		}
		return nil, nil
	}
	c := adopt.Config{Preset: f.preset, Table: cmp.Or(f.table, name)}
	c.SetDefaults()
	said := " --adopt " + shellWord(f.preset)
	if f.table != "" {
		said += " --table " + shellWord(f.table)
	}
	if err := c.Validate(); err != nil {
		return nil, usage(fmt.Errorf("--adopt: %w", err))
	}
	return &adoption{name: cmp.Or(name, c.Table), config: c, flags: said}, nil
}

// adoptions are those of the configuration file: that of --config, or ./penstock.yaml
// unless --database-url names another database than it does.
func (a *app) adoptions() (all []adoption, err error) {
	if a.configFile == "" && a.databaseURL != "" {
		return nil, nil
	}
	cfg, err := a.loadConfig()
	if err != nil && a.configFile == "" {
		// Nobody has asked for the file, and most verbs do not need it.
		fmt.Fprintln(a.stderr, "penstock: adopted tables are not looked at: "+defaultConfigFile+" has mistakes, which penstock relay tells")
		return nil, nil
	}
	if err != nil || cfg == nil {
		return nil, err
	}
	for _, s := range cfg.Subscriptions {
		if s.Adopt != nil {
			all = append(all, adoption{name: s.Name, config: s.Adopt.Config})
		}
	}
	return all, nil
}

// adopted finds the subscription of an adopted table that a verb is about: that of the
// flags, or the one of the name in the configuration file. It is nil if there is none.
func (a *app) adopted(ctx context.Context, f *adoptFlags, name string) (*adoptedStore, error) {
	found, err := f.named(name)
	if err == nil && found == nil {
		var all []adoption
		if all, err = a.adoptions(); err == nil {
			for i := range all {
				if all[i].name == name {
					found = &all[i]
				}
			}
		}
	}
	if err != nil || found == nil {
		return nil, err
	}
	return a.openAdopted(ctx, found)
}

func (a *app) openAdopted(ctx context.Context, of *adoption) (*adoptedStore, error) {
	url, schema, err := a.database()
	if err != nil {
		return nil, err
	}
	a.stderr.hide(url)
	if isSQLiteURL(url) {
		return nil, usage(errors.New("tables are adopted in PostgreSQL, and this database is SQLite"))
	}
	table, err := adopt.Open(ctx, adopt.Options{URL: url, Schema: schema, Subscription: of.name, Config: of.config, Log: slog.Default()})
	if err != nil {
		return nil, usage(fmt.Errorf("subscription %q: %w", of.name, err))
	}
	return &adoptedStore{Table: table, adoption: *of}, nil
}

// adoptedStore is an adopted table as the verbs see a store: with one outbox, the table,
// and its one subscription.
type adoptedStore struct {
	*adopt.Table
	adoption
}

func (s *adoptedStore) Status(ctx context.Context) ([]penstock.OutboxStatus, error) {
	status, err := s.Table.Status(ctx)
	return []penstock.OutboxStatus{{Outbox: s.config.Table, Subscriptions: []penstock.SubscriptionStatus{status}}}, err
}

func (s *adoptedStore) ParkedKeys(ctx context.Context, _, _ string, limit int) ([]penstock.ParkedKey, error) {
	return s.Table.ParkedKeys(ctx, limit)
}

func (s *adoptedStore) RetryParked(ctx context.Context, _, _ string, keys ...string) (int, error) {
	return s.Table.RetryParked(ctx, keys...)
}

// argument is what names the subscription on a command line.
func (s *adoptedStore) argument() string { return shellWord(s.name) + s.flags }

// about is the function of that name for this subscription.
func (s *adoptedStore) about(err error, doing string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, penstock.ErrNoSubscription):
		return fmt.Errorf("subscription %q of table %s: %w", s.name, visible(s.config.Table), penstock.ErrNoSubscription)
	case doing == "":
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// withOutboxOrTable calls of for the store if it has an outbox of that name, and
// otherwise, or if the flags say so, ofTable for the subscription that has the name.
func (a *app) withOutboxOrTable(ctx context.Context, f *adoptFlags, name string, of func(penstock.Store) error, ofTable func(*adoptedStore) error) error {
	var missing error
	if f.preset == "" {
		store, err := a.openStore(ctx)
		if err != nil {
			return err
		}
		defer store.Close()
		if missing = of(store); !errors.Is(missing, penstock.ErrNoOutbox) {
			return missing
		}
	}
	table, err := a.adopted(ctx, f, name)
	switch {
	case err != nil:
		return err
	case table == nil:
		return missing
	}
	defer table.Close()
	return table.about(ofTable(table), "")
}

// dropAdopted drops the subscription of an adopted table, which has no outbox.
func (a *app) dropAdopted(ctx context.Context, f *adoptFlags, args []string, leave consent, asJSON bool) error {
	if len(args) > 1 {
		return usage(errors.New("--adopt is given with an outbox: give the subscription's name alone"))
	}
	table, err := a.adopted(ctx, f, args[0])
	if err != nil {
		return err
	}
	if table == nil {
		return a.dropRemembered(ctx, args[0], leave, asJSON)
	}
	defer table.Close()
	s, err := table.Table.Status(ctx)
	var misfit *penstock.FieldError
	if errors.As(err, &misfit) { // the mapping, or the table, is not what it was
		return a.dropRemembered(ctx, table.name, leave, asJSON)
	}
	if err != nil {
		return table.about(err, "reading the status")
	}
	return a.dropAdoption(ctx, table.config.Table, s, leave, asJSON, func() error { return table.about(table.Drop(ctx), "dropping the subscription") })
}

// dropRemembered drops a subscription of an adopted table that no configuration names any
// more, or names in another way.
func (a *app) dropRemembered(ctx context.Context, name string, leave consent, asJSON bool) error {
	url, schema, err := a.database()
	if err != nil {
		return err
	}
	a.stderr.hide(url)
	o := adopt.Options{URL: url, Schema: schema, Subscription: name, Log: slog.Default()}
	if !isSQLiteURL(url) {
		all, err := adopt.Subscriptions(ctx, o)
		if err != nil {
			return fmt.Errorf("reading the subscriptions of adopted tables: %w", err)
		}
		for _, s := range all {
			if s.Status.Subscription == name {
				return a.dropAdoption(ctx, s.Table, s.Status, leave, asJSON, func() error { return adopt.DropSubscription(ctx, o) })
			}
		}
	}
	return misuse(fmt.Errorf("no subscription %q adopts a table: give OUTBOX and NAME, or --adopt", name))
}

// dropAdoption asks, and drops.
func (a *app) dropAdoption(ctx context.Context, table string, s penstock.SubscriptionStatus, leave consent, asJSON bool, drop func() error) error {
	name := s.Subscription
	lost := fmt.Sprintf("what it knows of %s and %s", plural(s.Parked, "parked row"), plural(s.DeadLetters, "dead letter"))
	warning := fmt.Sprintf("This drops subscription %s of table %s: %s is lost. The rows stay as they are.", visible(name), visible(table), lost)
	if isHeld(&s, time.Now()) {
		fmt.Fprintf(a.stderr, "penstock: a relay runs it (%s) and will make it anew: stop it first\n", visible(s.Holder))
	}
	if err := a.confirmName(ctx, leave, warning, name); err != nil {
		return err
	}
	if err := drop(); err != nil {
		return err
	}
	return a.tell(asJSON, map[string]any{"table": table, "subscription": name, "backlog": s.Backlog, "parked": s.Parked, "dead_letters": s.DeadLetters},
		"Subscription %s of table %s is gone; the table is as it was.\n", visible(name), visible(table))
}
