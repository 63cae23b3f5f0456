// Package inbox has penstock inbox.
package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/status"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

func Command(a *cli.App) *cobra.Command {
	return terminal.Group(&cobra.Command{Use: "inbox", Short: "Create, watch and operate the inboxes of consumers"},
		createCommand(a), setCommand(a), listCommand(a), statusCommand(a), heldCommand(a), gapsCommand(a),
		releaseCommand(a), discardCommand(a), grantCommand(a), dropCommand(a))
}

// findInbox returns the status of an inbox.
func findInbox(ctx context.Context, store driver.InboxStore, consumer string) (*admin.InboxStatus, error) {
	inboxes, err := store.Inboxes(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the status of inboxes: %w", err)
	}
	for i := range inboxes {
		if inboxes[i].Consumer == consumer {
			return &inboxes[i], nil
		}
	}
	return nil, about.Inbox(penstock.ErrNoInbox, "", consumer)
}

func createCommand(a *cli.App) *cobra.Command {
	var (
		keep      cli.Span
		ifMissing bool
	)
	cmd := terminal.Verb("create CONSUMER", "Create an inbox for a consumer", a.Checked(func(cmd *cobra.Command, _ []string) error {
		return validKeep(keep, cmd.Flags().Changed("keep"))
	}, func(ctx context.Context, store driver.Database, args []string) error {
		err := store.CreateInbox(ctx, args[0], time.Duration(keep))
		if err != nil && !(ifMissing && errors.Is(err, penstock.ErrInboxExists)) {
			return about.Inbox(err, fmt.Sprintf("creating the inbox %q", args[0]), args[0])
		}
		return a.Tell(map[string]any{"consumer": args[0]}, "Inbox %s is ready.\n", shell.Visible(args[0]))
	}))
	cmd.Flags().Var(&keep, "keep", "`duration` for which ids are known, such as 12h or 30d (default "+cli.SpanText(penstock.DefaultInboxKeep)+")")
	cmd.Flags().BoolVar(&ifMissing, "if-missing", false, "succeed if it exists already, and leave it as it is")
	return a.WithJSON(cmd, "the created object as one JSON line")
}

// validKeep reports a --keep that no inbox accepts.
func validKeep(keep cli.Span, given bool) error {
	d := time.Duration(keep)
	return cli.Refuse(given && penstock.ValidateInboxKeep(d) != nil,
		"--keep is %s: use a time between 1m and %s, such as 12h or 30d", cli.SpanText(d), cli.SpanText(penstock.MaxInboxKeep))
}

func setCommand(a *cli.App) *cobra.Command {
	var keep cli.Span
	cmd := terminal.Verb("set CONSUMER --keep DURATION", "Set how long an inbox knows ids", a.Checked(func(cmd *cobra.Command, _ []string) error {
		if !cmd.Flags().Changed("keep") {
			return terminal.Misuse(errors.New("nothing to set: give --keep"))
		}
		return validKeep(keep, true)
	}, func(ctx context.Context, store driver.Database, args []string) error {
		if err := store.SetInbox(ctx, args[0], time.Duration(keep)); err != nil {
			return about.Inbox(err, fmt.Sprintf("setting up the inbox %q", args[0]), args[0])
		}
		return a.Tell(map[string]any{"consumer": args[0], "keep_ns": time.Duration(keep)},
			"Inbox %s: ids are known for %s.\n", shell.Visible(args[0]), cli.SpanText(time.Duration(keep)))
	}))
	cmd.Flags().Var(&keep, "keep", "`duration` for which ids are known, such as 12h or 30d")
	return a.WithJSON(cmd, "the new settings, as one JSON line")
}

func listCommand(a *cli.App) *cobra.Command {
	return a.ListCommand("inboxes", "List the consumers that have an inbox", func(store driver.Database, ctx context.Context, _ string) (names []string, err error) {
		inboxes, err := store.Inboxes(ctx) // those that the role may see
		for i := range inboxes {
			names = append(names, inboxes[i].Consumer)
		}
		return names, err
	})
}

func dropCommand(a *cli.App) *cobra.Command {
	return a.DropCommand("CONSUMER", "Drop an inbox with its ids and its held messages",
		func(ctx context.Context, store driver.Database, consumer string) (cli.Drop, error) {
			box, err := findInbox(ctx, store, consumer)
			if err != nil {
				return cli.Drop{}, err
			}
			lost := terminal.Plural(box.Held, "held message")
			return cli.Drop{
				Warning: fmt.Sprintf("This deletes the inbox of %s with every id it knows, and %s.", shell.Visible(consumer), lost),
				Do: func() error {
					return about.Inbox(store.DropInbox(ctx, consumer), fmt.Sprintf("dropping the inbox %q", consumer), consumer)
				},
				Fields: map[string]any{"consumer": consumer, "held": box.Held},
				Gone:   fmt.Sprintf("Inbox %s is gone (counted before: %s).", shell.Visible(consumer), lost),
			}, nil
		})
}

var grantableInbox = cli.Grantable{Kind: "inbox", Argument: "CONSUMER", About: about.Inbox, Rights: []cli.Privilege{
	{Flag: "consume", Help: "receive, and nothing else", Grant: cli.Granter.GrantConsumer},
	{Flag: "operate", Help: "operate it: status, held, gaps, release, discard", Grant: cli.Granter.GrantInboxOperator},
}}

func grantCommand(a *cli.App) *cobra.Command {
	return a.GrantCommand("Let a role of PostgreSQL use an inbox", grantableInbox)
}

func statusCommand(a *cli.App) *cobra.Command {
	cmd := terminal.Verb("status [CONSUMER]", "Show the windows and sizes of inboxes, what they hold, and gaps",
		a.Opened(func(ctx context.Context, store driver.Database, args []string) (err error) {
			var inboxes []admin.InboxStatus
			if len(args) == 1 {
				one, err := findInbox(ctx, store, args[0])
				if err != nil {
					return err
				}
				inboxes = append(inboxes, *one)
			} else if inboxes, err = store.Inboxes(ctx); err != nil {
				return fmt.Errorf("reading the status of inboxes: %w", err)
			}
			return showInboxes(a, inboxes)
		}))
	return a.WithJSON(cmd, "one JSON line per inbox, durations in nanoseconds")
}

func showInboxes(a *cli.App, inboxes []admin.InboxStatus) error {
	if a.JSON {
		rows := a.Rows()
		for i := range inboxes {
			rows.Add(&inboxes[i])
		}
		return rows.End("")
	}
	if len(inboxes) == 0 {
		fmt.Fprintln(a.Stdout, a.Suggest("There is no inbox yet: penstock inbox create CONSUMER makes one."))
		return nil
	}
	return status.NewWriter(a.Stdout, a, time.Now()).Inboxes(inboxes)
}
