// Package outbox has the verbs about outboxes and their subscriptions: outbox, publish, tail,
// parked, replay and subscription.
package outbox

import (
	"cmp"
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
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

func Command(a *cli.App) *cobra.Command {
	return terminal.Group(&cobra.Command{Use: "outbox", Short: "Create, set up, list, grant and drop outboxes"},
		createCommand(a), setCommand(a), listCommand(a), grantCommand(a), dropCommand(a))
}

func createCommand(a *cli.App) *cobra.Command {
	var (
		ifMissing, retains bool
		by, with           string
		retain             retentionFlags
	)
	cmd := terminal.Verb("create NAME", "Create an outbox", a.Checked(func(cmd *cobra.Command, _ []string) (err error) {
		retains, err = retain.read(cmd.Flags())
		return cmp.Or(err,
			cli.Refuse((by == "") != (with == ""), "--distribute-by and --colocate-with go together: give the column, and the table with whose rows messages lie"),
			cli.Refuse(by != "" && retains, "a distributed outbox keeps no settled messages: leave out --retain-age and --retain-bytes"))
	}, func(ctx context.Context, store driver.Database, args []string) error {
		create := store.CreateOutbox
		if by != "" {
			distributor, ok := store.(driver.Distributor)
			if !ok {
				return terminal.Usage(errors.New("this database's driver distributes no outboxes: use --profile portable on PostgreSQL with Citus"))
			}
			create = func(ctx context.Context, name string) error {
				return distributor.CreateDistributedOutbox(ctx, name, by, with)
			}
		}
		if err := create(ctx, args[0]); err != nil && !(ifMissing && errors.Is(err, penstock.ErrOutboxExists)) {
			return fmt.Errorf("creating outbox %q: %w", args[0], cli.NameTaken(err, "an outbox"))
		}
		if retains {
			if _, err := retain.apply(ctx, store, args[0]); err != nil {
				return fmt.Errorf("outbox %q is there, but its retention was not changed: %w", args[0], err)
			}
		}
		return a.Tell(map[string]any{"outbox": args[0]}, "Outbox %s is ready.\n", shell.Visible(args[0]))
	}))
	retain.add(cmd.Flags())
	cmd.Flags().BoolVar(&ifMissing, "if-missing", false, "succeed if it exists already")
	cmd.Flags().StringVar(&by, "distribute-by", "", "on Citus, the `column` that decides on which worker a message lies, such as tenant")
	cmd.Flags().StringVar(&with, "colocate-with", "", "on Citus, the distributed `table` with whose rows messages lie")
	return a.WithJSON(cmd, "the created object as one JSON line")
}

func listCommand(a *cli.App) *cobra.Command {
	return a.ListCommand("outboxes", "List the outboxes", driver.Database.Names)
}

func dropCommand(a *cli.App) *cobra.Command {
	return a.DropCommand("NAME", "Drop an outbox with everything in it",
		func(ctx context.Context, store driver.Database, name string) (cli.Drop, error) {
			found, err := cli.FindOutbox(ctx, store, name)
			if err != nil {
				return cli.Drop{}, err
			}
			lost, fields := outboxLoss(found)
			return cli.Drop{
				Warning: fmt.Sprintf("This deletes outbox %s with every message in it, delivered or not: %s.", shell.Visible(name), lost),
				Do: func() error {
					return about.Outbox(store.DropOutbox(ctx, name), fmt.Sprintf("dropping outbox %q", name), name, "")
				},
				Fields: fields,
				Gone:   fmt.Sprintf("Outbox %s is gone (%s).", shell.Visible(name), lost),
			}, nil
		})
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
	cmd := terminal.Verb("grant OUTBOX ROLE --publish | grant ROLE --relay", "Let a role of PostgreSQL publish, or relay",
		func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			switch {
			case publish == relay:
				return terminal.Misuse(errors.New("the right to grant is missing: give --publish or --relay"))
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
		})
	cmd.Args = terminal.Args(cobra.RangeArgs(1, 2))
	cmd.Flags().BoolVar(&publish, "publish", false, "write messages to one outbox, and nothing else")
	cmd.Flags().BoolVar(&relay, "relay", false, "relay and operate every outbox, and publish nothing")
	return a.WithJSON(cmd, "the rights granted, as one JSON line")
}

// retentionFlags set how long settled messages are kept. A nil flag leaves the setting unchanged.
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
func (f *retentionFlags) read(flags *pflag.FlagSet) (given bool, err error) {
	if f.age, err = cli.OrOff(flags, "retain-age", f.ageText, cli.ParseSpan); err == nil {
		f.bytes, err = cli.OrOff(flags, "retain-bytes", f.bytesText, cli.ParseSize)
	}
	return f.age != nil || f.bytes != nil, err
}

// apply changes the given limits and leaves the others.
func (f *retentionFlags) apply(ctx context.Context, store driver.Store, outbox string) (admin.Retention, error) {
	found, err := cli.FindOutbox(ctx, store, outbox)
	if err != nil {
		return admin.Retention{}, err
	}
	r := found.Retention
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
	cmd := terminal.Verb("set NAME", "Set how long an outbox keeps settled messages", a.Checked(func(cmd *cobra.Command, _ []string) error {
		given, err := f.read(cmd.Flags())
		if err == nil && !given {
			err = terminal.Misuse(errors.New("nothing to set: give --retain-age or --retain-bytes"))
		}
		return err
	}, func(ctx context.Context, store driver.Database, args []string) error {
		r, err := f.apply(ctx, store, args[0])
		if err != nil {
			return err
		}
		return a.Tell(map[string]any{"outbox": args[0], "retention": r}, "Outbox %s keeps settled messages: %s.\n", shell.Visible(args[0]), cli.RetentionText(r))
	}))
	f.add(cmd.Flags())
	return a.WithJSON(cmd, "the new settings, as one JSON line")
}
