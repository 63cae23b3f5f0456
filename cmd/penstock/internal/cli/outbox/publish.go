package outbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/lines"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/writer"
)

type publishFlags struct {
	message              penstock.Message // without its headers and its payload
	headers              []string
	payload, payloadFile string
	cli.LineFlags
	once string
}

func PublishCommand(a *cli.App) *cobra.Command {
	var f publishFlags
	cmd := terminal.Verb("publish OUTBOX", "Publish one message, or JSON lines of a file or stdin", func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		flags := cmd.Flags()
		if err := cli.NotEmpty(flags, "id", "key", "topic", "payload-file", "file", "once", "rejects"); err != nil {
			return err
		}
		one := false
		for _, name := range []string{"id", "key", "topic", "header", "payload", "payload-file"} {
			one = one || flags.Changed(name)
		}
		if err := cmp.Or(
			cli.Refuse(!one && f.File == "" && terminal.IsTerminal(a.Stdin), "nothing to publish: give --topic and --payload, --file, or JSON lines on stdin"),
			cli.Refuse(one && f.File != "", "--file is given with flags of one message: its lines have their own key, topic and payload"),
			cli.Refuse(one && f.once != "" && f.message.ID == "", "--once needs --id: the message is recognized by it"),
			f.Check(),
			cli.Refuse(flags.Changed("payload") && flags.Changed("payload-file"), "--payload and --payload-file are given: use one of them"),
		); err != nil {
			return err
		}
		headers, err := cli.ReadHeaders(f.headers, "name=value")
		if err != nil {
			return err
		}
		store, err := a.OpenStore(ctx)
		if err != nil {
			return err
		}
		start := time.Now()
		var to writer.Store = store
		if f.once != "" {
			once, ok := store.(writer.OnceStore)
			if !ok {
				return terminal.Usage(errors.New("--once: this database's driver has no inboxes: use PostgreSQL or SQLite"))
			}
			to = writer.Once(once, f.once)
		}
		var done cli.Carried
		if one {
			done.Sent, err = publishOne(ctx, a, to, args[0], &f, headers)
		} else {
			done, err = publishLines(ctx, a, to, args[0], &f)
		}
		if err != nil {
			err = cli.MixedUp(ctx, store, err, args[0])
		}
		return errors.Join(publishSummary(a, args[0], done, time.Since(start), &f, err), err)
	})
	flags := cmd.Flags()
	flags.StringVar(&f.message.ID, "id", "", "`id` of the message (default: derived)")
	flags.StringVarP(&f.message.Key, "key", "k", "", "`key` whose messages are delivered in order")
	flags.StringVarP(&f.message.Topic, "topic", "t", "", "`topic` of the message")
	flags.StringArrayVarP(&f.headers, "header", "H", nil, "header as `name=value`; may be repeated")
	flags.StringVarP(&f.payload, "payload", "p", "", "payload as `text`")
	flags.StringVar(&f.payloadFile, "payload-file", "", "`file` to read the payload from, - for stdin")
	f.Add(flags)
	flags.StringVar(&f.once, "once", "", "`inbox` by which messages that were published before are skipped")
	return a.WithJSON(cmd, "summary as one JSON line")
}

func publishOne(ctx context.Context, a *cli.App, store writer.Store, outbox string, f *publishFlags, headers map[string]string) (int64, error) {
	m := f.message
	m.Headers, m.Payload = headers, []byte(f.payload)
	if f.payloadFile != "" {
		var err error
		if m.Payload, err = a.ReadPayload(ctx, "--payload-file", f.payloadFile); err != nil {
			return 0, err
		}
	}
	if err := store.Publish(ctx, outbox, m); err != nil {
		return 0, about.Outbox(err, "publishing", outbox, "")
	}
	return 1, nil
}

func publishLines(ctx context.Context, a *cli.App, store writer.Store, outbox string, f *publishFlags) (cli.Carried, error) {
	kind := lines.Messages
	if f.once != "" {
		id := f.Numbered(outbox)
		kind.Parse = func(line []byte) (penstock.Message, error) {
			of := id(line)
			m, err := lines.ParseMessage(line)
			m.ID = cmp.Or(m.ID, of)
			return m, err
		}
	}
	w := f.Writer(store)
	defer func() { _ = w.Close(ctx) }()
	return cli.CarryLines(ctx, a, &f.LineFlags, &kind, func(ctx context.Context, msgs []penstock.Message) (func(context.Context) error, error) {
		wait, err := w.PublishAsync(ctx, outbox, msgs...)
		return func(ctx context.Context) error { return about.Outbox(wait(ctx), "", outbox, "") }, err
	}, cli.Refuses(store))
}

func publishSummary(a *cli.App, outbox string, done cli.Carried, took time.Duration, f *publishFlags, err error) error {
	if a.JSON {
		fields := map[string]any{"outbox": outbox, "published": done.Sent, "seconds": took.Seconds()}
		if done.Rejected > 0 {
			fields["rejected"] = done.Rejected
		}
		return json.NewEncoder(a.Stdout).Encode(fields)
	}
	if err == nil || done.Rejected > 0 {
		fmt.Fprintf(a.Stdout, "%s published to %s.\n", terminal.Plural(done.Sent, "message"), shell.Visible(outbox))
	}
	return nil
}
