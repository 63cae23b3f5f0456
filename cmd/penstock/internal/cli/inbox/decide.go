package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

func releaseCommand(a *cli.App) *cobra.Command {
	var (
		f     heldFlags
		q     admin.HeldQuery
		all   bool
		leave = cli.Consent{Undone: "nothing was released"}
	)
	cmd := terminal.Verb("release CONSUMER --key KEY|--previous ID|--id ID|--all", "Stop waiting for missing messages: make held ones due",
		cli.Checked(a, "inboxes", func(cmd *cobra.Command, args []string) error {
			if err := cli.NotEmpty(cmd.Flags(), "key", "previous", "id"); err != nil {
				return err
			}
			q.Consumer, q.Key, q.Previous = args[0], f.key, f.previous
			narrowed := chosenHeld(q) != ""
			if !narrowed && !all {
				return terminal.Misuse(errors.New("nothing was released: select messages with --key, --previous or --id, or give --all"))
			}
			leave.Yes = leave.Yes || !all
			return cmp.Or(
				cli.Refuse(narrowed && all, "--all is given with flags that narrow the choice: leave it out, the rest takes every one that matches"),
				a.Possible(leave))
		}, func(ctx context.Context, store driver.InboxStore, _ []string) error {
			if all {
				if err := confirmRelease(ctx, a, store, q.Consumer, leave); err != nil {
					return err
				}
			}
			return release(ctx, a, store, q)
		}))
	f.add(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&q.ID, "id", "", "the held message with this `id`, and its line")
	flags.BoolVar(&all, "all", false, "all held messages; asks first")
	flags.BoolVar(&leave.Yes, "yes", false, "do not ask")
	return a.WithJSON(cmd, "how many, as one JSON line")
}

func confirmRelease(ctx context.Context, a *cli.App, store driver.InboxStore, consumer string, leave cli.Consent) error {
	box, err := findInbox(ctx, store, consumer)
	if err != nil || box.Held == 0 {
		return err
	}
	return a.Confirm(ctx, leave, fmt.Sprintf("Release %s of %s, past the gaps before them?", terminal.Plural(box.Held, "message"), shell.Visible(consumer)))
}

func release(ctx context.Context, a *cli.App, store driver.InboxStore, q admin.HeldQuery) error {
	n, err := store.ReleaseHeld(ctx, q)
	text := fmt.Sprintf("%s of %s due now: the consumer's next inbox_due hands them over.", terminal.Plural(n, "message"), shell.Visible(q.Consumer))
	switch {
	case err != nil:
		return about.Inbox(err, "releasing", q.Consumer)
	case n == 0 && q.ID != "":
		return notHeld(q.Consumer, q.ID)
	case n == 0:
		text = fmt.Sprintf("Nothing of %s%s is held.", shell.Visible(q.Consumer), chosenHeld(q))
	}
	return a.Tell(map[string]any{"consumer": q.Consumer, "released": n}, "%s\n", text)
}

func discardCommand(a *cli.App) *cobra.Command {
	leave := cli.Consent{Undone: "nothing was discarded"}
	cmd := terminal.Verb("discard CONSUMER ID…", "Delete held messages, as if they had never come",
		cli.Checked(a, "inboxes", func(*cobra.Command, []string) error { return a.Possible(leave) },
			func(ctx context.Context, store driver.InboxStore, args []string) error {
				consumer, ids := args[0], slices.Compact(slices.Sorted(slices.Values(args[1:])))
				if err := areHeld(ctx, store, consumer, ids); err != nil {
					return err
				}
				question := fmt.Sprintf("Discard %s of %s permanently?", terminal.Plural(int64(len(ids)), "held message"), shell.Visible(consumer))
				if err := a.Confirm(ctx, leave, question); err != nil {
					return err
				}
				gone, err := store.DiscardHeld(ctx, consumer, ids...)
				if err != nil {
					return about.Inbox(err, "discarding", consumer)
				}
				text := fmt.Sprintf("%s of %s discarded", terminal.Plural(int64(len(gone)), "held message"), shell.Visible(consumer))
				if rest := len(ids) - len(gone); rest > 0 {
					text += fmt.Sprintf("; %s meanwhile handed over", terminal.Count(int64(rest)))
				}
				return a.Tell(map[string]any{"consumer": consumer, "discarded": len(gone)}, "%s.\n", text)
			}))
	cmd.Flags().BoolVar(&leave.Yes, "yes", false, "do not ask")
	return a.WithJSON(cmd, "how many, as one JSON line")
}

// areHeld fails unless all of them are held: a mistyped id, or one of another consumer, must not
// be ignored.
func areHeld(ctx context.Context, store driver.InboxStore, consumer string, ids []string) error {
	var missing []string
	for _, id := range ids {
		if id == "" {
			return terminal.Usage(errors.New("ID is empty: give the id of a held message"))
		}
		held, err := store.HeldMessages(ctx, admin.HeldQuery{Consumer: consumer, ID: id})
		if err != nil {
			return about.Inbox(err, "reading held messages", consumer)
		}
		if len(held) == 0 {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("nothing was discarded: %w", notHeld(consumer, missing...))
	}
	return nil
}
