package dead

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/internal/terminal"
)

func showCommand(a *cli.App) *cobra.Command {
	var (
		f    deadFlags
		full bool
	)
	cmd := &cobra.Command{
		Use:   "show OUTBOX|QUEUE|SUBSCRIPTION ID",
		Short: "Show a dead letter with its payload and all errors",
		Long: `Show everything about one dead letter: headers, payload, and the latest errors
with the times of the attempts.

A payload that is not text is shown as base64. Long ones are cut off unless --full is
given; --json is never cut, and penstock publish and enqueue take its payload.`,
		Example: `  penstock dead show orders 018f3c…
  penstock dead show emails 4711
  penstock dead show orders --seq 4711 --subscription billing --full
  penstock dead show orders 018f3c… --json | jq -r .payload`,
		Args: terminal.Args(cobra.RangeArgs(0, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			switch {
			case len(args) == 2 && len(f.seqs) == 0:
				f.ids = args[1:]
			case len(args) != 1 || len(f.seqs) != 1:
				return terminal.Misuse(errors.New("it takes OUTBOX or QUEUE and an ID, or OUTBOX and one --seq"))
			}
			if err := f.check(cmd.Flags()); err != nil {
				return err
			}
			box, err := openDeadLetters(ctx, a, args[0], &f, cmd.Flags())
			if err != nil {
				return err
			}
			return showDead(ctx, a, box, full)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.subscription, "subscription", "", "dead letter of this subscription, by its `name` (default: the outbox's only subscription)")
	flags.Int64SliceVar(&f.seqs, "seq", nil, "the one with this `seq`, instead of ID")
	f.Flags.Add(flags)
	flags.BoolVar(&full, "full", false, "the whole payload, however long")
	return a.WithJSON(cmd, "one JSON line, with the whole payload")
}

func showDead(ctx context.Context, a *cli.App, box deadLetters, full bool) error {
	shown := 0
	err := eachPage(ctx, box, 0, func(page []deadLetter) (err error) {
		for _, l := range page {
			if a.JSON {
				err = json.NewEncoder(a.Stdout).Encode(l.json(true))
			} else {
				next := fmt.Sprintf("\nNext: penstock dead retry %s\n  or: penstock dead discard %[1]s\n", l.arguments())
				_, err = io.WriteString(a.Stdout, l.text(full, time.Now())+a.Suggest(next))
			}
			if err != nil {
				return err
			}
		}
		shown += len(page)
		return nil
	})
	if err != nil || shown > 0 {
		return err
	}
	return noDeadLetter(box, box.named())
}
