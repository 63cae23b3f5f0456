package outbox

import (
	"cmp"
	"context"
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
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/sink/stdout"
)

type tailFlags struct {
	cli.FilterFlags
	filter penstock.Filter
	key    string
	start  string
	follow bool
	limit  int
}

func TailCommand(a *cli.App) *cobra.Command {
	var (
		f     tailFlags
		start config.Start
	)
	cmd := terminal.Verb("tail OUTBOX", "Print messages of an outbox (read-only)", a.Checked(func(cmd *cobra.Command, _ []string) (err error) {
		if start, err = cli.ParseStart(f.start); err != nil {
			return err
		}
		if err = cmp.Or(cli.Refuse(start == config.FromNow && !f.follow, "--start now without --follow prints nothing: add --follow"),
			cli.NotEmpty(cmd.Flags(), "key")); err != nil {
			return err
		}
		f.filter, err = f.Read()
		return err
	}, func(ctx context.Context, store driver.Database, args []string) error {
		source, err := store.Subscribe(ctx, driver.Subscribe{Outbox: args[0], Subscription: "tail", Ephemeral: true, Start: start.Of()})
		if err != nil {
			return about.Outbox(err, fmt.Sprintf("reading outbox %q", args[0]), args[0], "")
		}
		defer source.Close(context.WithoutCancel(ctx))
		err = tail(ctx, source, messagePrinter(a), f)
		if f.follow && errors.Is(err, context.Canceled) {
			return nil // interrupting is the way to end it
		}
		return err
	}))
	flags := cmd.Flags()
	flags.StringVar(&f.start, "start", "beginning", "`start`: beginning or now")
	flags.BoolVarP(&f.follow, "follow", "f", false, "continue with messages that are committed later, until interrupted")
	f.Add(flags, "print")
	flags.StringVarP(&f.key, "key", "k", "", "print only messages of this `key`")
	a.WithJSON(cmd, "one JSON line per message")
	flags.IntVarP(&f.limit, "limit", "n", 0, "stop after this `number` of messages")
	return cmd
}

func tail(ctx context.Context, source driver.Source, show func(context.Context, []penstock.Message) error, f tailFlags) error {
	const pollEvery = 100 * time.Millisecond
	for shown := 0; ; {
		batch, err := source.Fetch(ctx, driver.Limit{Messages: 500, Bytes: 4 << 20})
		if err != nil {
			return err
		}
		chosen := f.choose(batch.Messages)
		if f.limit > 0 {
			chosen = chosen[:min(len(chosen), f.limit-shown)]
		}
		if err := show(ctx, chosen); err != nil {
			return err
		}
		shown += len(chosen)
		if f.limit > 0 && shown >= f.limit {
			return nil
		}
		if batch.More || len(batch.Messages) > 0 {
			continue
		}
		if !f.follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// choose returns the messages to show.
func (f *tailFlags) choose(msgs []penstock.Message) []penstock.Message {
	if f.key == "" && f.filter.Empty() {
		return msgs
	}
	var chosen []penstock.Message
	for i := range msgs {
		if m := &msgs[i]; (f.key == "" || m.Key == f.key) && f.filter.Match(m) {
			chosen = append(chosen, *m)
		}
	}
	return chosen
}

func messagePrinter(a *cli.App) func(context.Context, []penstock.Message) error {
	if a.JSON {
		lines := stdout.New(a.Stdout)
		return func(ctx context.Context, msgs []penstock.Message) error {
			for _, err := range lines.Send(ctx, msgs) {
				if err != nil {
					return err
				}
			}
			return nil
		}
	}
	return func(_ context.Context, msgs []penstock.Message) error {
		var text strings.Builder
		for i := range msgs {
			writeText(&text, &msgs[i])
		}
		_, err := io.WriteString(a.Stdout, text.String())
		return err
	}
}

// writeText writes a message for people, on one line.
func writeText(w *strings.Builder, m *penstock.Message) {
	fmt.Fprintf(w, "%s  %s", m.CreatedAt.Local().Format("2006-01-02 15:04:05.000"), printable(m.Topic, 60))
	if m.Key != "" {
		fmt.Fprintf(w, "  key=%s", printable(m.Key, 40))
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		fmt.Fprintf(w, "  %s=%s", printable(name, 40), printable(m.Headers[name], 60))
	}
	if utf8.Valid(m.Payload) {
		fmt.Fprintf(w, "  %s\n", printable(string(m.Payload), 200))
	} else {
		fmt.Fprintf(w, "  (%d bytes that are not text)\n", len(m.Payload))
	}
}

// printable removes control characters and limits text to n characters.
func printable(s string, n int) string {
	var out strings.Builder
	for _, r := range s {
		if n == 0 {
			fmt.Fprintf(&out, "… (%d bytes)", len(s))
			break
		}
		n--
		if r < 0x20 || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
			r = '·'
		}
		out.WriteRune(r)
	}
	return out.String()
}
