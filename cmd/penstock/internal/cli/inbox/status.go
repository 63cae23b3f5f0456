package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/status"
	"github.com/penstock/penstock/internal/terminal"
)

func statusCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [CONSUMER]",
		Short: "Show the windows and sizes of inboxes, what they hold, and gaps",
		Long: `Show every inbox, or one of them:

  keeps     for how long ids are known at least: see penstock inbox set
  size      the inbox's size on disk; only on PostgreSQL, because elsewhere inboxes
            share their tables
  segments  of its ring, on PostgreSQL, and the one that is written to
  held      messages that came before the one they follow: see penstock inbox held
  payloads  the bytes of those
  next gap  in how long the first of them is handed over, past its gap
  gaps      messages that did not come in time, within about the last window:
            see penstock inbox gaps

Problems that need an operator follow below.`,
		Example: `  penstock inbox status
  penstock inbox status billing --json | jq .held`,
		Args: terminal.Args(cobra.MaximumNArgs(1)),
		RunE: cli.Opened(a, "inboxes", func(ctx context.Context, store inboxStore, args []string) (err error) {
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
		}),
	}
	return a.WithJSON(cmd, "one JSON line per inbox, durations in nanoseconds")
}

func showInboxes(a *cli.App, inboxes []admin.InboxStatus) error {
	if a.JSON {
		return cli.JSONLines(a.Stdout, inboxes, func(b *admin.InboxStatus) any { return b })
	}
	if len(inboxes) == 0 {
		fmt.Fprintln(a.Stdout, a.Suggest("There is no inbox yet: penstock inbox create CONSUMER makes one."))
		return nil
	}
	return status.NewWriter(a.Stdout, a, time.Now()).Inboxes(inboxes)
}
