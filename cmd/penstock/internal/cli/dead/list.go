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

func listCommand(a *cli.App) *cobra.Command {
	var f deadFlags
	cmd := terminal.Verb("list OUTBOX|QUEUE|SUBSCRIPTION", "List dead letters with their last errors", func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		f.listing = true
		if err := f.check(cmd.Flags()); err != nil {
			return err
		}
		box, err := openDeadLetters(ctx, a, args[0], &f, cmd.Flags())
		if err != nil {
			return err
		}
		now, rows := time.Now(), a.Rows(box.columns()...)
		if err := eachPage(ctx, box, f.Limit, func(page []letter) error {
			for _, l := range page {
				rows.Add(l.forPrograms(false), l.row(now)...)
			}
			return rows.Err()
		}); err != nil {
			return err
		}
		return rows.End(fmt.Sprintf("0 dead letters of %s%s.", box.name(), map[bool]string{true: " match"}[f.narrowed]))
	})
	f.add(cmd.Flags())
	cmd.Flags().BoolVar(&f.all, "all", false, "all of them, which is the default")
	return a.WithJSON(cmd, "one JSON line per dead letter, without payloads")
}

func showCommand(a *cli.App) *cobra.Command {
	var (
		f    deadFlags
		full bool
	)
	cmd := terminal.Verb("show OUTBOX|QUEUE|SUBSCRIPTION ID", "Show a dead letter with its payload and all errors",
		func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			switch {
			case len(args) == 2 && len(f.Seqs) == 0:
				f.IDs = args[1:]
			case len(args) != 1 || len(f.Seqs) != 1:
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
		})
	cmd.Args = terminal.Args(cobra.RangeArgs(0, 2)) // with --seq there is no ID
	flags := cmd.Flags()
	flags.StringVar(&f.Subscription, "subscription", "", "dead letter of this subscription, by its `name` (default: the outbox's only subscription)")
	flags.Int64SliceVar(&f.Seqs, "seq", nil, "the one with this `seq`, instead of ID")
	flags.Lookup("seq").DefValue = "" // not "[]"
	f.Flags.Add(flags)
	flags.BoolVar(&full, "full", false, "the whole payload, however long")
	return a.WithJSON(cmd, "one JSON line, with the whole payload")
}

func showDead(ctx context.Context, a *cli.App, box deadLetters, full bool) error {
	shown := 0
	err := eachPage(ctx, box, 0, func(page []letter) (err error) {
		for _, l := range page {
			if a.JSON {
				err = json.NewEncoder(a.Stdout).Encode(l.forPrograms(true))
			} else {
				next := fmt.Sprintf("\nNext: penstock dead retry %s\n  or: penstock dead discard %[1]s\n", box.arguments()+" "+l.argument)
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
