// Package outbox has the verbs about outboxes and their subscriptions: outbox, publish, tail,
// parked, replay and subscription.
package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

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
			if err := createOutbox(ctx, store, args[0], ifMissing); err != nil {
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

// outboxCreator has the methods of a store that create an outbox.
type outboxCreator interface {
	CreateOutbox(ctx context.Context, name string) error
}

func createOutbox(ctx context.Context, store outboxCreator, name string, ifMissing bool) error {
	err := store.CreateOutbox(ctx, name)
	if ifMissing && errors.Is(err, penstock.ErrOutboxExists) {
		return nil
	}
	return err
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
