package inbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
		a.Checked(func(cmd *cobra.Command, args []string) error {
			q.Consumer, q.Key, q.Previous, q.ID = args[0], f.key, f.previous, append(args, "")[1]
			return cmp.Or(checkLimit(q.Limit), cli.NotEmpty(cmd.Flags(), "key", "previous"),
				cli.Refuse(len(args) == 2 && q.ID == "", "ID is empty: give the id of a message, or leave it out to list them"),
				cli.Refuse(len(args) == 1 && full, "--full goes with ID: say which message to show"))
		}, func(ctx context.Context, store driver.Database, _ []string) error {
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
	cmd := terminal.Verb("gaps CONSUMER", "List messages that an inbox expected but never received", a.Checked(func(*cobra.Command, []string) error { return checkLimit(limit) },
		func(ctx context.Context, store driver.Database, args []string) error {
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

func releaseCommand(a *cli.App) *cobra.Command {
	var (
		f     heldFlags
		q     admin.HeldQuery
		all   bool
		leave = cli.Consent{Undone: "nothing was released"}
	)
	cmd := terminal.Verb("release CONSUMER --key KEY|--previous ID|--id ID|--all", "Stop waiting for missing messages: make held ones due",
		a.Checked(func(cmd *cobra.Command, args []string) error {
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
		}, func(ctx context.Context, store driver.Database, _ []string) error {
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
		a.Checked(func(*cobra.Command, []string) error { return a.Possible(leave) },
			func(ctx context.Context, store driver.Database, args []string) error {
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
