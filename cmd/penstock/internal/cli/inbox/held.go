package inbox

import (
	"cmp"
	"context"
	"encoding/json"
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

// heldFlags choose among held messages.
type heldFlags struct{ key, previous string }

func (f *heldFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.key, "key", "k", "", "those of this `key`")
	flags.StringVar(&f.previous, "previous", "", "those that wait for the message with this `id`")
}

func heldCommand(a *cli.App) *cobra.Command {
	var (
		f    heldFlags
		q    admin.HeldQuery
		full bool
	)
	cmd := terminal.Verb("held CONSUMER [ID]", "Show the messages that an inbox holds back, and those that they wait for",
		cli.Checked(a, "inboxes", func(cmd *cobra.Command, args []string) error {
			q.Consumer, q.Key, q.Previous, q.ID = args[0], f.key, f.previous, append(args, "")[1]
			return cmp.Or(checkLimit(q.Limit), cli.NotEmpty(cmd.Flags(), "key", "previous"),
				cli.Refuse(len(args) == 2 && q.ID == "", "ID is empty: give the id of a message, or leave it out to list them"),
				cli.Refuse(len(args) == 1 && full, "--full goes with ID: say which message to show"))
		}, func(ctx context.Context, store driver.InboxStore, _ []string) error {
			if q.ID != "" {
				return showHeld(ctx, a, store, q, full)
			}
			return listHeld(ctx, a, store, q)
		}))
	f.add(cmd.Flags())
	cmd.Flags().IntVar(&q.Limit, "limit", 100, "at most this `number`")
	cmd.Flags().BoolVar(&full, "full", false, "with ID: the whole payload, however long")
	return a.WithJSON(cmd, "one JSON line per message; with ID, with the payload")
}

// heldJSON is a held message for programs.
type heldJSON struct {
	Consumer     string            `json:"consumer"`
	ID           string            `json:"id"`
	Key          string            `json:"key"`
	Previous     string            `json:"previous"`
	PreviousHeld bool              `json:"previous_held"`
	HeldAt       time.Time         `json:"held_at"`
	Due          time.Time         `json:"due"`
	Headers      map[string]string `json:"headers,omitempty"`
	PayloadBytes int64             `json:"payload_bytes"`
	*cli.PayloadJSON
}

func heldForPrograms(consumer string, m *admin.HeldMessage, withPayload bool) *heldJSON {
	line := &heldJSON{
		Consumer: consumer, ID: m.ID, Key: m.Key, Previous: m.Previous, PreviousHeld: m.PreviousHeld,
		HeldAt: m.At.UTC(), Due: m.Due.UTC(), Headers: m.Headers, PayloadBytes: m.PayloadBytes,
	}
	if withPayload {
		payload := cli.PayloadFor(m.Payload)
		line.PayloadJSON = &payload
	}
	return line
}

// listHeld asks for one more than it shows, to find out whether there are more.
func listHeld(ctx context.Context, a *cli.App, store driver.InboxStore, q admin.HeldQuery) error {
	limit := q.Limit
	q.Limit++
	held, err := store.HeldMessages(ctx, q)
	if err != nil {
		return about.Inbox(err, "reading held messages", q.Consumer)
	}
	rows := a.Rows(terminal.Cut("ID", 40), terminal.Cut("KEY", 24), terminal.Cut("PREVIOUS", 40), terminal.Left("WHICH"),
		terminal.Left("HELD"), terminal.Left("DUE"), terminal.Right("PAYLOAD"))
	if len(held) > limit {
		held, rows.More = held[:limit], "raise --limit"
	}
	now := time.Now()
	for i := range held {
		m := &held[i]
		rows.Add(heldForPrograms(q.Consumer, m, false), m.ID, m.Key, m.Previous, heldOrMissing(m),
			cli.Since(m.At, now), cli.Until(m.Due, now), terminal.Size(m.PayloadBytes))
	}
	return rows.End(fmt.Sprintf("Nothing of %s%s is held.", shell.Visible(q.Consumer), chosenHeld(q)))
}

// chosenHeld describes how a query narrows the choice.
func chosenHeld(q admin.HeldQuery) string {
	text := ""
	for _, part := range []struct{ what, value string }{{"with the key", q.Key}, {"that waits for", q.Previous}, {"with the id", q.ID}} {
		if part.value != "" {
			text += fmt.Sprintf(" %s %s", part.what, shell.Visible(part.value))
		}
	}
	return text
}

func heldOrMissing(m *admin.HeldMessage) string {
	if m.PreviousHeld {
		return "held"
	}
	return "missing"
}

func showHeld(ctx context.Context, a *cli.App, store driver.InboxStore, q admin.HeldQuery, full bool) error {
	held, err := store.HeldMessages(ctx, q)
	switch {
	case err != nil:
		return about.Inbox(err, "reading held messages", q.Consumer)
	case len(held) == 0:
		return notHeld(q.Consumer, q.ID)
	case a.JSON:
		return json.NewEncoder(a.Stdout).Encode(heldForPrograms(q.Consumer, &held[0], true))
	}
	m, now := &held[0], time.Now()
	var t cli.DeadLetterText
	t.Line("id", "%s", shell.Visible(m.ID))
	t.Line("key", "%s", shell.Visible(m.Key))
	t.Line("previous", "%s, which is %s", shell.Visible(m.Previous), heldOrMissing(m))
	t.Line("held", "since %s, %s ago", cli.Clock(m.At), cli.Since(m.At, now))
	t.Line("due", "%s, %s", cli.Clock(m.Due), cli.Until(m.Due, now))
	t.Headers(m.Headers)
	t.Payload(m.Payload, full)
	chosen := shell.Word(q.Consumer)
	next := fmt.Sprintf("\nNext: penstock inbox release %s --id %s\n  or: penstock inbox discard %[1]s %[2]s\n", chosen, shell.Word(m.ID))
	_, err = fmt.Fprint(a.Stdout, t.String(), a.Suggest(next))
	return err
}

func notHeld(consumer string, ids ...string) error {
	for i := range ids {
		ids[i] = shell.Visible(ids[i])
	}
	return penstock.WithHint(fmt.Errorf("inbox %q holds no message %s", consumer, strings.Join(ids, ", ")),
		"it may have been handed over meanwhile; penstock inbox held %s shows those there are", shell.Word(consumer))
}

// checkLimit leaves room for one more, which shows that there are more.
func checkLimit(limit int) error {
	return cli.Refuse(limit < 1 || limit >= admin.MaxRows, "--limit is %d: use 1 to %d", limit, admin.MaxRows-1)
}

func gapsCommand(a *cli.App) *cobra.Command {
	var limit int
	cmd := terminal.Verb("gaps CONSUMER", "List messages that an inbox expected but never received", cli.Checked(a, "inboxes",
		func(*cobra.Command, []string) error { return checkLimit(limit) },
		func(ctx context.Context, store driver.InboxStore, args []string) error {
			return listGaps(ctx, a, store, args[0], limit)
		}))
	cmd.Flags().IntVar(&limit, "limit", 100, "at most this `number`")
	return a.WithJSON(cmd, "one JSON line per gap")
}

func listGaps(ctx context.Context, a *cli.App, store driver.InboxStore, consumer string, limit int) error {
	gaps, err := store.InboxGaps(ctx, consumer, limit+1)
	if err != nil {
		return about.Inbox(err, "reading gaps", consumer)
	}
	rows := a.Rows(terminal.Cut("MISSING", 40), terminal.Cut("KEY", 24), terminal.Cut("FOLLOWED", 40),
		terminal.Left("REPORTED"), terminal.Left("WHY"), terminal.Left("CAME"))
	if len(gaps) > limit {
		gaps, rows.More = gaps[:limit], "raise --limit"
	}
	now := time.Now()
	for i := range gaps {
		g, why := &gaps[i], "waited"
		if g.Discarded {
			why = "discarded"
		}
		g.At = g.At.UTC()
		rows.Add(gapJSON{consumer, g}, g.Missing, g.Key, g.Next, cli.Since(g.At, now), why, terminal.YesNo(g.Came))
	}
	return rows.End(fmt.Sprintf("No gap of %s was reported.", shell.Visible(consumer)))
}

type gapJSON struct {
	Consumer string `json:"consumer"`
	*admin.InboxGap
}
