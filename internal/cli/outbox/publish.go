package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/about"
	"github.com/penstock/penstock/internal/cli"
)

// publisher is what publish needs of a store.
type publisher interface {
	Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error
}

type publishFlags struct {
	id, key, topic       string
	headers              []string
	payload, payloadFile string
	batch                int
	asJSON, progress     bool
}

func PublishCommand(a *cli.App) *cobra.Command {
	var f publishFlags
	cmd := &cobra.Command{
		Use:   "publish OUTBOX",
		Short: "Publish one message, or JSON lines from stdin",
		Long: `Publish one message, given by flags, or one per line of JSON from stdin.

A line is an object with any of these fields:

  key             orders: messages of one key arrive one after another
  topic           what the message is about; sinks route by it
  headers         {"name":"value"}
  payload         a string is taken as it is, any other JSON value as its text
  payload_base64  instead of payload, for bytes that are no text
  id              for consumers to deduplicate by; derived if not given

seq, created_at and attempt are passed over, so what tail --json or the stdout
sink wrote can be published again. An unknown field is an error, and so is one
that is given twice.

Lines are published in batches of --batch, and each batch is one transaction:
all of its lines are published or none. When a line is bad, its batch is not
published and nothing after it is read; the error names the line, and from
where on to repeat. --batch 0 makes all of the input one transaction, which is
held in memory.

Applications do not need this verb: they insert into the outbox in their own
transaction. It is for trying things, and for scripts.`,
		Example: `  penstock publish orders --topic order.paid --key 42 --payload '{"total":10}'
  penstock publish orders --topic report --payload-file report.pdf -H content-type=application/pdf
  penstock publish orders < messages.jsonl
  printf '{"topic":"t","key":"%s","payload":"hello"}\n' a b c | penstock publish orders --json`,
		Args: cli.Exactly("OUTBOX"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			flags := cmd.Flags()
			if err := cli.NotEmpty(flags, "id", "key", "topic", "payload-file"); err != nil {
				return err
			}
			one := false
			for _, name := range []string{"id", "key", "topic", "header", "payload", "payload-file"} {
				one = one || flags.Changed(name)
			}
			if !one && cli.IsTerminal(a.Stdin) {
				return cli.Usage(errors.New("nothing to publish: give --topic and --payload, or JSON lines on stdin"))
			}
			if f.batch < 0 {
				return cli.Usage(errors.New("--batch is negative: use 1 or more, or 0 for one transaction"))
			}
			if flags.Changed("payload") && flags.Changed("payload-file") {
				return cli.Usage(errors.New("--payload and --payload-file are given: use one of them"))
			}
			headers, err := cli.ReadHeaders(f.headers)
			if err != nil {
				return err
			}
			store, err := a.OpenStore(ctx)
			if err != nil {
				return err
			}
			start := time.Now()
			var n int64
			if one {
				n, err = publishOne(ctx, a, store, args[0], &f, headers)
			} else {
				n, err = publishLines(ctx, a, store, args[0], &f)
			}
			return errors.Join(publishSummary(a, args[0], n, time.Since(start), &f, err), err)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.id, "id", "", "message id (default: derived)")
	flags.StringVarP(&f.key, "key", "k", "", "key that orders")
	flags.StringVarP(&f.topic, "topic", "t", "", "topic")
	flags.StringArrayVarP(&f.headers, "header", "H", nil, "header as name=value; may be repeated")
	flags.StringVarP(&f.payload, "payload", "p", "", "payload as text")
	flags.StringVar(&f.payloadFile, "payload-file", "", "file to take the payload from, - for stdin")
	flags.IntVar(&f.batch, "batch", 1000, "lines per transaction, 0 for all in one")
	flags.BoolVar(&f.asJSON, "json", false, "summary as one JSON line")
	flags.BoolVar(&f.progress, "progress", false, "show progress though stderr is no terminal")
	return cmd
}

func publishOne(ctx context.Context, a *cli.App, store publisher, outbox string, f *publishFlags, headers map[string]string) (int64, error) {
	m := penstock.Message{ID: f.id, Key: f.key, Topic: f.topic, Headers: headers, Payload: []byte(f.payload)}
	if f.payloadFile != "" {
		var err error
		if m.Payload, err = readPayload(a, f.payloadFile); err != nil {
			return 0, err
		}
	}
	if err := store.Publish(ctx, outbox, m); err != nil {
		return 0, about.Outbox(err, "publishing", outbox, "")
	}
	return 1, nil
}

// readPayload reads no more than a message may hold, and a byte to notice.
func readPayload(a *cli.App, file string) ([]byte, error) {
	in := a.Stdin
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, cli.Usage(fmt.Errorf("--payload-file: %w", err))
		}
		defer opened.Close()
		in = opened
	}
	payload, err := io.ReadAll(io.LimitReader(in, penstock.MaxPayloadBytes+1))
	if err != nil {
		return nil, fmt.Errorf("--payload-file: %w", err)
	}
	return payload, nil
}

func publishLines(ctx context.Context, a *cli.App, store publisher, outbox string, f *publishFlags) (int64, error) {
	return cli.CarryLines(ctx, a.Stdin, &messageLines, f.batch, a, f.progress, func(msgs []penstock.Message) error {
		return about.Outbox(store.Publish(ctx, outbox, msgs...), "", outbox, "")
	})
}

func publishSummary(a *cli.App, outbox string, n int64, took time.Duration, f *publishFlags, err error) error {
	if f.asJSON {
		return json.NewEncoder(a.Stdout).Encode(map[string]any{"outbox": outbox, "published": n, "seconds": took.Seconds()})
	}
	if err == nil {
		fmt.Fprintf(a.Stdout, "%s published to %s.\n", cli.Plural(n, "message"), cli.Visible(outbox))
	}
	return nil
}
