// Package outbox has the verbs about outboxes and their subscriptions: outbox, publish, tail,
// parked, replay and subscription.
package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

func Command(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "outbox",
		Short: "Create, set up, list, grant and drop outboxes",
		Long: `An outbox is a table that a business transaction inserts into, so that its
messages commit or roll back with everything else it wrote.`,
	}
	return terminal.Group(cmd, createCommand(a), setCommand(a), listCommand(a), grantCommand(a), dropCommand(a))
}

func createCommand(a *cli.App) *cobra.Command {
	var (
		ifMissing bool
		retain    retentionFlags
	)
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an outbox",
		Long: `Create an outbox. The name may be any text of 1 to 48 bytes that no queue has;
names of small letters, digits and underscores need no quoting in SQL.

Messages that every subscription has settled are reclaimed, unless --retain-age or
--retain-bytes keep them for penstock replay. penstock outbox set explains these
limits and changes them.`,
		Example: `  penstock outbox create orders
  penstock outbox create orders --if-missing
  penstock outbox create orders --retain-age 24h --retain-bytes 1GiB`,
		Args: terminal.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			retains, err := retain.read(cmd.Flags())
			if err != nil {
				return err
			}
			store, err := a.OpenStore(ctx)
			if err != nil {
				return err
			}
			if err := store.CreateOutbox(ctx, args[0]); err != nil && !(ifMissing && errors.Is(err, penstock.ErrOutboxExists)) {
				return fmt.Errorf("creating outbox %q: %w", args[0], cli.NameTaken(err, "an outbox"))
			}
			if retains {
				if _, err := retain.apply(ctx, store, args[0]); err != nil {
					return fmt.Errorf("outbox %q is there, but keeps what it did: %w", args[0], err)
				}
			}
			return a.Tell(map[string]any{"outbox": args[0]}, "Outbox %s is ready.\n", shell.Visible(args[0]))
		},
	}
	retain.add(cmd.Flags())
	cmd.Flags().BoolVar(&ifMissing, "if-missing", false, "succeed if it exists already")
	return a.WithJSON(cmd, "the created object as one JSON line")
}

func listCommand(a *cli.App) *cobra.Command {
	cmd := cli.ListCommand(a, "outboxes", cli.NamesOf("outboxes"))
	cmd.Short = "List the outboxes"
	cmd.Long = `List the names of the outboxes. penstock status shows their contents.`
	cmd.Example = `  penstock outbox list
  penstock outbox list --json`
	return cmd
}

func dropCommand(a *cli.App) *cobra.Command {
	cmd := cli.DropCommand(a, func(ctx context.Context, name string) (cli.Drop, error) {
		store, err := a.OpenStore(ctx)
		if err != nil {
			return cli.Drop{}, err
		}
		found, err := cli.ReadStatus(ctx, store, []string{name})
		if err != nil {
			return cli.Drop{}, err
		}
		lost, fields := outboxLoss(&found[0])
		return cli.Drop{
			Warning: fmt.Sprintf("This deletes outbox %s with every message in it, delivered or not: %s.", shell.Visible(name), lost),
			Do: func() error {
				return about.Outbox(store.DropOutbox(ctx, name), fmt.Sprintf("dropping outbox %q", name), name, "")
			},
			Fields: fields,
			Gone:   fmt.Sprintf("Outbox %s is gone (%s).", shell.Visible(name), lost),
		}, nil
	})
	cmd.Short = "Drop an outbox with everything in it"
	cmd.Long = `Drop an outbox with its messages, subscriptions and dead letters. Undelivered messages
are lost, so it says how many there are and asks for the outbox's name. Without a
terminal it refuses unless --yes is given. On PostgreSQL it waits until open
transactions that have used the outbox end.`
	cmd.Example = `  penstock outbox drop orders
  penstock outbox drop orders --yes`
	return cmd
}

// outboxLoss describes the loss of an outbox, for people and for programs.
func outboxLoss(o *admin.OutboxStatus) (text string, fields map[string]any) {
	var backlog, parked, dead int64
	var of []string
	for i := range o.Subscriptions {
		s := &o.Subscriptions[i]
		backlog, parked, dead = backlog+s.Backlog, parked+s.Parked, dead+s.DeadLetters
		of = append(of, fmt.Sprintf("%s had %s to deliver and %s", shell.Visible(s.Subscription), terminal.Plural(s.Backlog+s.Parked, "message"), terminal.Plural(s.DeadLetters, "dead letter")))
	}
	if len(of) == 0 {
		of = []string{"it had no subscription, so nothing was delivered"}
	}
	return strings.Join(of, "; "), map[string]any{"outbox": o.Outbox, "backlog": backlog, "parked": parked, "dead_letters": dead}
}

func grantCommand(a *cli.App) *cobra.Command {
	var publish, relay bool
	cmd := &cobra.Command{
		Use:   "grant OUTBOX ROLE --publish | grant ROLE --relay",
		Short: "Let a role of PostgreSQL publish, or relay",
		Long: `Let a role of PostgreSQL publish to one outbox, or relay every outbox, with no more
rights than that needs. The role must exist. Only the owner of the schema can grant.

  --publish  for applications: it can write messages to OUTBOX, by penstock.publish, by
             a plain INSERT or with penstock publish, and cannot read any
  --relay    for relays and their operators: relay, status, tail, dead, parked and
             replay, of every outbox, also of later ones. It cannot publish

A grant that exists already is not an error. To end a right, run "drop owned by ROLE"
or REVOKE in SQL; it stays ended with later outboxes and migrations.`,
		Example: `  penstock outbox grant orders webshop --publish
  penstock outbox grant relay_role --relay`,
		Args: terminal.Args(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			switch {
			case publish == relay:
				return terminal.Misuse(errors.New("what to grant is not clear: give --publish or --relay"))
			case publish && len(args) != 2:
				return terminal.Misuse(errors.New("--publish is for one outbox: give OUTBOX and ROLE"))
			case relay && len(args) != 1:
				return terminal.Misuse(errors.New("--relay is for every outbox: give ROLE alone"))
			}
			g, err := a.OpenGranter(ctx)
			if err != nil {
				return err
			}
			role := args[len(args)-1]
			if relay {
				if err := g.GrantRelay(ctx, role); err != nil {
					return fmt.Errorf("granting --relay: %w", err)
				}
				return a.Tell(map[string]any{"role": role, "granted": []string{"relay"}}, "Role %s may relay every outbox.\n", shell.Visible(role))
			}
			if err := g.GrantProducer(ctx, args[0], role); err != nil {
				return about.Outbox(err, "granting --publish", args[0], "")
			}
			return a.Tell(map[string]any{"outbox": args[0], "role": role, "granted": []string{"publish"}},
				"Role %s may publish on outbox %s.\n", shell.Visible(role), shell.Visible(args[0]))
		},
	}
	cmd.Flags().BoolVar(&publish, "publish", false, "write messages to one outbox, and nothing else")
	cmd.Flags().BoolVar(&relay, "relay", false, "relay and operate every outbox, and publish nothing")
	return a.WithJSON(cmd, "the rights granted, as one JSON line")
}

// retentionSetter has the methods of a store that change the retention.
type retentionSetter interface {
	cli.StatusReader
	SetRetention(ctx context.Context, outbox string, r admin.Retention) error
}

// retentionFlags say how long settled messages are kept. A nil flag leaves the setting unchanged.
type retentionFlags struct {
	ageText, bytesText string
	age                *time.Duration
	bytes              *int64
}

func (f *retentionFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.ageText, "retain-age", "", "keep settled messages for this `duration`, such as 24h or 7d; off keeps none for their age")
	flags.StringVar(&f.bytesText, "retain-bytes", "", "keep settled messages up to this `size`, such as 1GiB; off keeps none for their size")
}

// read parses the given flags and reports whether there are any.
func (f *retentionFlags) read(flags *pflag.FlagSet) (bool, error) {
	if flags.Changed("retain-age") {
		f.age = new(time.Duration)
		if !isOff(f.ageText) {
			age, err := cli.ParseSpan(f.ageText)
			if err != nil {
				return false, terminal.Usage(fmt.Errorf("--retain-age is %q: %w, or off", f.ageText, err))
			}
			*f.age = age
		}
	}
	if flags.Changed("retain-bytes") {
		f.bytes = new(int64)
		if !isOff(f.bytesText) {
			bytes, err := cli.ParseSize(f.bytesText)
			if err != nil {
				return false, terminal.Usage(fmt.Errorf("--retain-bytes is %q: %w, or off", f.bytesText, err))
			}
			*f.bytes = bytes
		}
	}
	return f.age != nil || f.bytes != nil, nil
}

func isOff(s string) bool { return s == "off" || s == "0" }

// apply changes the given limits and leaves the others.
func (f *retentionFlags) apply(ctx context.Context, store retentionSetter, outbox string) (admin.Retention, error) {
	found, err := cli.ReadStatus(ctx, store, []string{outbox})
	if err != nil {
		return admin.Retention{}, err
	}
	r := found[0].Retention
	if f.age != nil {
		r.Age = *f.age
	}
	if f.bytes != nil {
		r.Bytes = *f.bytes
	}
	return r, about.Outbox(store.SetRetention(ctx, outbox, r), "setting the retention", outbox, "")
}

func setCommand(a *cli.App) *cobra.Command {
	var f retentionFlags
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Set how long an outbox keeps settled messages",
		Long: `Set an outbox's retention: how long it keeps messages that every subscription has
settled. penstock replay can deliver them again, and penstock tail shows them. By
default none are kept. A flag that is not given leaves its limit as it is; 0 or off
turns it off.

With both limits a message is removed when it exceeds one of them. Storage is freed in
larger units, so messages may stay longer. Messages that a subscription has not
delivered are always kept.`,
		Example: `  penstock outbox set orders --retain-age 24h
  penstock outbox set orders --retain-age 7d --retain-bytes 10GiB
  penstock outbox set orders --retain-bytes off`,
		Args: terminal.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			given, err := f.read(cmd.Flags())
			if err != nil {
				return err
			}
			if !given {
				return terminal.Misuse(errors.New("nothing to set: give --retain-age or --retain-bytes"))
			}
			store, err := a.OpenStore(ctx)
			if err != nil {
				return err
			}
			r, err := f.apply(ctx, store, args[0])
			if err != nil {
				return err
			}
			return a.Tell(map[string]any{"outbox": args[0], "retention": r}, "Outbox %s keeps settled messages: %s.\n", shell.Visible(args[0]), cli.RetentionText(r))
		},
	}
	f.add(cmd.Flags())
	return a.WithJSON(cmd, "the new settings, as one JSON line")
}
