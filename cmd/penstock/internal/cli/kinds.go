package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// Granter is a store whose database has roles.
type Granter interface {
	GrantProducer(ctx context.Context, outbox, role string) error
	GrantRelay(ctx context.Context, role string) error
	GrantEnqueuer(ctx context.Context, queue, role string) error
	GrantWorker(ctx context.Context, queue, role string) error
	GrantOperator(ctx context.Context, queue, role string) error
	GrantConsumer(ctx context.Context, consumer, role string) error
	GrantInboxOperator(ctx context.Context, consumer, role string) error
}

// Privilege is something that a role may be allowed to do.
type Privilege struct {
	Flag, Help string
	Grant      func(store Granter, ctx context.Context, name, role string) error
}

// Grantable is a kind of thing with rights.
type Grantable struct {
	Kind, Argument string // queue, QUEUE
	Rights         []Privilege
	About          func(err error, doing, name string) error
}

func (a *App) GrantCommand(short string, to Grantable) *cobra.Command {
	wanted := make([]bool, len(to.Rights))
	cmd := terminal.Verb("grant "+to.Argument+" ROLE", short, func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		var rights []Privilege
		var flags []string
		for i, r := range to.Rights {
			flags = append(flags, "--"+r.Flag)
			if wanted[i] {
				rights = append(rights, r)
			}
		}
		if len(rights) == 0 {
			last := len(flags) - 1
			return terminal.Misuse(fmt.Errorf("nothing to grant: give %s or %s", strings.Join(flags[:last], ", "), flags[last]))
		}
		g, err := a.OpenGranter(ctx)
		if err != nil {
			return err
		}
		return a.grant(ctx, g, to, rights, args[0], args[1])
	})
	for i, r := range to.Rights {
		cmd.Flags().BoolVar(&wanted[i], r.Flag, false, r.Help)
	}
	return a.WithJSON(cmd, "the rights granted, as one JSON line")
}

// OpenGranter opens a database that has roles.
func (a *App) OpenGranter(ctx context.Context) (Granter, error) {
	store, err := a.OpenStore(ctx)
	if err != nil {
		return nil, err
	}
	g, ok := store.(Granter)
	if !ok {
		return nil, terminal.Usage(errors.New("this database has no roles: a user who may write the file may do everything; grants are for PostgreSQL"))
	}
	return g, nil
}

func (a *App) grant(ctx context.Context, g Granter, to Grantable, rights []Privilege, name, role string) error {
	granted := make([]string, len(rights))
	for i, r := range rights {
		if err := r.Grant(g, ctx, name, role); err != nil {
			return to.About(err, "granting --"+r.Flag, name)
		}
		granted[i] = r.Flag
	}
	return a.Tell(map[string]any{strings.ToLower(to.Argument): name, "role": role, "granted": granted},
		"Role %s may %s on %s %s.\n", shell.Visible(role), strings.Join(granted, " and "), to.Kind, shell.Visible(name))
}

// Drop describes an object that a verb would drop.
type Drop struct {
	Warning string // the loss, shown before the question
	Do      func() error
	Fields  map[string]any // the dropped objects, for programs
	Gone    string         // and for people
}

// DropCommand is the verb that drops a thing with its contents, once its name was typed or --yes is
// given.
func (a *App) DropCommand(argument, short string, find func(ctx context.Context, store driver.Database, name string) (Drop, error)) *cobra.Command {
	leave := Consent{Undone: "nothing was dropped"}
	cmd := terminal.Verb("drop "+argument, short, a.Checked(func(*cobra.Command, []string) error { return a.Possible(leave) },
		func(ctx context.Context, store driver.Database, args []string) error {
			drop, err := find(ctx, store, args[0])
			if err == nil {
				err = a.ConfirmName(ctx, leave, drop.Warning, args[0])
			}
			if err == nil {
				err = drop.Do()
			}
			if err != nil {
				return err
			}
			return a.Tell(drop.Fields, "%s\n", drop.Gone)
		}))
	cmd.Flags().BoolVar(&leave.Yes, "yes", false, "do not ask")
	return a.WithJSON(cmd, "the dropped object as one JSON line")
}

// ListCommand is the verb that lists the names of one kind of thing: a name a line, or
// one JSON array.
func (a *App) ListCommand(things, short string, names func(store driver.Database, ctx context.Context, things string) ([]string, error)) *cobra.Command {
	cmd := terminal.Verb("list", short, a.Opened(func(ctx context.Context, store driver.Database, _ []string) error {
		found, err := names(store, ctx, things)
		if err != nil {
			return fmt.Errorf("listing %s: %w", things, err)
		}
		slices.Sort(found) // by bytes, whatever the database's locale
		if a.JSON {
			return json.NewEncoder(a.Stdout).Encode(append([]string{}, found...)) // [] rather than null
		}
		for _, name := range found {
			fmt.Fprintln(a.Stdout, shell.Visible(name))
		}
		return nil
	}))
	return a.WithJSON(cmd, "a JSON array on one line")
}

// Rows prints what a verb lists: for programs a line of JSON each, for people a table.
type Rows struct {
	a     *App
	table *terminal.Table
	err   error // the first of a write
	Shown int
	More  string // how to see the others, if there are more
}

func (a *App) Rows(columns ...terminal.Column) *Rows {
	return &Rows{a: a, table: terminal.NewTable(a.Stdout, columns...)}
}

// Add prints one of them. After an error, which Err and End return, it prints nothing.
func (r *Rows) Add(forPrograms any, cells ...string) {
	r.Shown++
	switch {
	case r.err != nil:
	case r.a.JSON:
		r.err = json.NewEncoder(r.a.Stdout).Encode(forPrograms)
	default:
		r.table.Row(cells...)
		r.err = r.table.Err()
	}
}

// Err ends a long list when its reader has gone.
func (r *Rows) Err() error { return r.err }

// End prints the rest of the table, or for people the sentence none if nothing was added.
func (r *Rows) End(none string) error {
	if r.More != "" {
		defer fmt.Fprintln(r.a.Stderr, "penstock: there are more: "+r.More)
	}
	switch {
	case r.a.JSON || r.err != nil:
		return r.err
	case r.Shown == 0:
		_, err := fmt.Fprintln(r.a.Stdout, none)
		return err
	}
	return r.table.Flush()
}
