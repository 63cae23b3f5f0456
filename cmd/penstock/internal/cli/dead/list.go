package dead

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/internal/terminal"
)

func listCommand(a *cli.App) *cobra.Command {
	var f deadFlags
	cmd := &cobra.Command{
		Use:   "list OUTBOX|QUEUE|SUBSCRIPTION",
		Short: "List dead letters with their last errors",
		Long: `List the dead letters of a subscription, in order of seq, or those of a queue, in
order of id. Those that were sent back and have not died again are not among
them.

` + deadSelectorsHelp + `

  attempts  how often it was sent, or run
  age       since when it is dead
  held      later messages of its key wait until it is retried or discarded

--json prints one object per line, with all errors that were kept but without
the payload: show has it.`,
		Example: `  penstock dead list orders
  penstock dead list orders --subscription billing --error 'no such queue' --newer-than 1h
  penstock dead list emails --group acme
  penstock dead list emails --kind welcome
  penstock dead list emails --group ''                # the jobs without a group
  penstock dead list orders --json | jq -r .error | sort | uniq -c | sort -rn`,
		Args: terminal.Exactly("OUTBOX|QUEUE|SUBSCRIPTION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			f.listing = true
			if err := f.check(cmd.Flags()); err != nil {
				return err
			}
			box, err := openDeadLetters(ctx, a, args[0], &f, cmd.Flags())
			if err != nil {
				return err
			}
			if a.JSON {
				lines := json.NewEncoder(a.Stdout)
				return eachPage(ctx, box, f.limit, func(page []deadLetter) error {
					for _, l := range page {
						if err := lines.Encode(l.json(false)); err != nil {
							return err
						}
					}
					return nil
				})
			}
			list := terminal.NewTable(a.Stdout, box.columns()...)
			listed := 0
			now := time.Now()
			err = eachPage(ctx, box, f.limit, func(page []deadLetter) error {
				for _, l := range page {
					list.Row(l.row(now)...)
				}
				listed += len(page)
				return list.Err()
			})
			if err != nil {
				return err
			}
			if listed == 0 {
				fmt.Fprintf(a.Stdout, "0 dead letters of %s%s.\n", box.name(), map[bool]string{true: " match"}[f.narrowed])
				return nil
			}
			return list.Flush()
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().BoolVar(&f.all, "all", false, "all of them, which is the default")
	return a.WithJSON(cmd, "one JSON line per dead letter, without payloads")
}
