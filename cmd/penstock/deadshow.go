package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
)

// shownPayload is how many bytes of a payload are shown unless all are wanted.
const shownPayload = 2 << 10

func (a *app) deadShowCommand() *cobra.Command {
	var (
		f            deadFlags
		full, asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "show OUTBOX ID",
		Short: "Show a dead letter with its payload and all errors",
		Long: `Show everything about one dead letter: headers, payload, and the latest errors
with the times of the attempts.

A payload that is no text is shown as base64. Long ones are cut off unless
--full is given; --json is never cut, and penstock publish takes its payload.`,
		Example: `  penstock dead show orders 018f3c…
  penstock dead show orders --seq 4711 --subscription billing --full
  penstock dead show orders 018f3c… --json | jq -r .payload`,
		Args: args(cobra.RangeArgs(0, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			switch {
			case len(args) == 2 && len(f.seqs) == 0:
				f.ids = args[1:]
			case len(args) != 1 || len(f.seqs) != 1:
				return misuse(errors.New("it takes OUTBOX and an ID, or OUTBOX and one --seq"))
			}
			if err := f.check(cmd.Flags()); err != nil {
				return err
			}
			store, subscription, err := a.openSubscription(ctx, args[0], f.subscription)
			if err != nil {
				return err
			}
			defer store.Close()
			return a.showDead(ctx, store, f.query(args[0], subscription, cmd.Flags()), full, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.subscription, "subscription", "", "whose dead letter (default: the outbox's only subscription)")
	flags.Int64SliceVar(&f.seqs, "seq", nil, "the one with this seq, instead of ID")
	flags.BoolVar(&full, "full", false, "the whole payload, however long")
	flags.BoolVar(&asJSON, "json", false, "one JSON line, with the whole payload")
	return cmd
}

func (a *app) showDead(ctx context.Context, store deadReader, q penstock.DeadLetterQuery, full, asJSON bool) error {
	shown := 0
	err := eachPage(ctx, store, q, 0, func(page []penstock.DeadLetter) error {
		for i := range page {
			d := &page[i]
			if asJSON {
				if err := json.NewEncoder(a.stdout).Encode(deadJSON(d).withPayload(d.Message.Payload)); err != nil {
					return err
				}
			} else if _, err := io.WriteString(a.stdout, deadText(&q, d, full, time.Now())); err != nil {
				return err
			}
		}
		shown += len(page)
		return nil
	})
	if err != nil || shown > 0 {
		return err
	}
	return noDeadLetter(q, q.IDs, q.Seqs)
}

// deadText is a dead letter for people.
func deadText(q *penstock.DeadLetterQuery, d *penstock.DeadLetter, full bool, now time.Time) string {
	var out strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&out, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	m := &d.Message
	line("id", "%s", visible(m.ID))
	line("seq", "%d of %s", m.Seq, ofSubscription(q.Outbox, q.Subscription))
	line("topic", "%s", orDash(visible(m.Topic)))
	line("key", "%s", orDash(visible(m.Key)))
	line("created", "%s", clock(m.CreatedAt))
	line("died", "%s, %s ago, after %s", clock(d.At), since(d.At, now), plural(int64(attempts(d)), "attempt"))
	if d.Held {
		line("held", "yes: later messages of its key wait until it is retried or discarded")
	}
	for i, name := range slices.Sorted(maps.Keys(m.Headers)) {
		line(map[bool]string{true: "headers"}[i == 0], "%s: %s", visible(name), visible(m.Headers[name]))
	}
	for i, f := range d.Failures {
		line(map[bool]string{true: "errors"}[i == 0], "%d  %s  %s", f.Attempt, clock(f.At), visible(f.Err))
	}
	writePayload(&out, m.Payload, full)
	chosen := fmt.Sprintf("%s --subscription %s --seq %d", shellWord(q.Outbox), shellWord(q.Subscription), m.Seq)
	fmt.Fprintf(&out, "\nNext: penstock dead retry %s\n  or: penstock dead discard %s\n", chosen, chosen)
	return out.String()
}

func writePayload(out *strings.Builder, payload []byte, full bool) {
	shown, kind := payload, "text"
	if !utf8.Valid(payload) {
		kind = "base64 of bytes that are no text"
	}
	if !full && len(payload) > shownPayload {
		shown = payload[:shownPayload]
		if kind == "text" {
			for !utf8.Valid(shown) { // not within a character
				shown = shown[:len(shown)-1]
			}
		}
		kind += fmt.Sprintf("; the first %s, --full shows the rest", size(int64(len(shown))))
	}
	if len(payload) == 0 {
		out.WriteString("payload   empty\n")
		return
	}
	fmt.Fprintf(out, "payload   %s (%s)\n\n", size(int64(len(payload))), kind)
	if !utf8.Valid(payload) {
		out.WriteString(base64.StdEncoding.EncodeToString(shown) + "\n")
		return
	}
	for text := range strings.Lines(string(shown)) {
		fmt.Fprintf(out, "%s\n", visible(strings.ReplaceAll(strings.TrimRight(text, "\r\n"), "\t", "    ")))
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
