package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
)

func (a *app) inboxStatusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status [CONSUMER]",
		Short: "Show the windows and sizes of inboxes, what they hold, and gaps",
		Long: `Show every inbox, or one of them:

  keeps     how long ids are known at least: see penstock inbox set
  size      what the inbox takes on disk; on SQLite, where inboxes share their
            tables, it is not shown
  segments  of its ring, on PostgreSQL, and the one that is written to
  held      messages that came before the one they follow: see penstock inbox held
  payloads  the bytes of those
  next gap  in how long the first of them is handed over in any case
  gaps      messages that were waited for in vain, within the last window or so:
            see penstock inbox gaps

What needs a person stands below.`,
		Example: `  penstock inbox status
  penstock inbox status billing --json | jq .held`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			store, err := a.openInboxes(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			var inboxes []penstock.InboxStatus
			if len(args) == 1 {
				one, err := findInbox(ctx, store, args[0])
				if err != nil {
					return err
				}
				inboxes = append(inboxes, *one)
			} else if inboxes, err = store.Inboxes(ctx); err != nil {
				return fmt.Errorf("reading the status of inboxes: %w", err)
			}
			return a.showInboxes(inboxes, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON line per inbox, durations in nanoseconds")
	return cmd
}

func (a *app) showInboxes(inboxes []penstock.InboxStatus, asJSON bool) error {
	if asJSON {
		lines := json.NewEncoder(a.stdout)
		for i := range inboxes {
			if err := lines.Encode(&inboxes[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if len(inboxes) == 0 {
		fmt.Fprintln(a.stdout, a.suggest("There is no inbox yet: penstock inbox create CONSUMER makes one."))
		return nil
	}
	return a.statusWriter(false).inboxes(inboxes)
}

func (w *statusWriter) inboxes(inboxes []penstock.InboxStatus) error {
	t := w.table(column{"CONSUMER", 32, false}, column{title: "KEEPS"}, column{title: "SIZE", right: true}, column{title: "SEGMENTS"},
		column{title: "HELD", right: true}, column{title: "PAYLOADS", right: true}, column{title: "NEXT GAP"}, column{title: "GAPS", right: true})
	var notes []string
	for i := range inboxes {
		b := &inboxes[i]
		bytes := ""
		if b.Bytes > 0 {
			bytes = size(b.Bytes)
		}
		if err := t.row(b.Consumer, spanText(b.Keep), bytes, segments(b.Segments), count(b.Held), size(b.HeldBytes), until(b.NextGap, w.now), count(b.Gaps)); err != nil {
			return err
		}
		if late := w.now.Sub(b.NextGap); b.Held > 0 && late > unattended {
			notes = append(notes, fmt.Sprintf("%s: messages have been due for %s, and nobody hands them over: the consumer has to call inbox_due about once a second, or cannot process the first of them: penstock inbox held %s",
				visible(b.Consumer), coarse(late), shellWord(b.Consumer)))
		}
	}
	if err := t.flush(); err != nil {
		return err
	}
	w.notes(notes)
	return nil
}

// until says in how long something is: "" if t is zero.
func until(t, now time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case !t.After(now):
		return "now"
	}
	return "in " + coarse(t.Sub(now)+time.Second-1)
}
