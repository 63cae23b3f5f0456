package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
)

// statusReader is what status needs of a store.
type statusReader interface {
	Status(ctx context.Context) ([]penstock.OutboxStatus, error)
}

func (a *app) statusCommand() *cobra.Command {
	var (
		asJSON, watch bool
		every         time.Duration
	)
	cmd := &cobra.Command{
		Use:   "status [OUTBOX]",
		Short: "Show backlogs, rates, sizes and who relays what",
		Long: `Show every outbox, or one, with its subscriptions:

  size      what the outbox takes on disk
  segments  of its ring, on PostgreSQL, and the one that is written to
  keeps     how long it keeps what is settled: see penstock outbox set

  backlog   committed messages that are not settled yet, parked ones aside
  oldest    the age of the oldest of them
  rate      messages settled per second over about the last minute
  parked    messages that wait for another attempt, or behind one that does
  keys      how many keys they belong to: see penstock parked
  held      keys among them that wait until someone decides about a dead letter
  dead      dead letters: kept until someone decides, see penstock dead
  holder    the relay that has the subscription's lease
  epoch     how often the lease changed hands
  since     how long ago the holder took it

What needs a person, or explains a figure, stands below. A backlog that grows
while a holder is shown means that the sink does not keep up or is down: the
relay's log tells which. No holder means that no relay runs.

--json has every field, also those that the table has no room for.`,
		Example: `  penstock status
  penstock status orders --watch
  penstock status --json | jq '.outboxes[].subscriptions[].backlog'`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			store, err := a.openStore(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			if every <= 0 {
				return usage(fmt.Errorf("--every is %v: use a time such as 2s", every))
			}
			for {
				outboxes, err := readStatus(ctx, store, args)
				if watch && ctx.Err() != nil {
					return nil // interrupting is how a watch ends
				}
				if err != nil {
					return err
				}
				if err := a.showStatus(outboxes, asJSON, watch); err != nil || !watch {
					return err
				}
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(every):
				}
			}
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON line, times in nanoseconds")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "repeat until interrupted")
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "how often, with --watch")
	return cmd
}

func readStatus(ctx context.Context, store statusReader, only []string) ([]penstock.OutboxStatus, error) {
	outboxes, err := store.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the status: %w", err)
	}
	if len(only) == 0 {
		return outboxes, nil
	}
	for _, o := range outboxes {
		if o.Outbox == only[0] {
			return []penstock.OutboxStatus{o}, nil
		}
	}
	return nil, about(penstock.ErrNoOutbox, "", only[0], "")
}

func (a *app) showStatus(outboxes []penstock.OutboxStatus, asJSON, watch bool) error {
	if asJSON {
		if outboxes == nil {
			outboxes = []penstock.OutboxStatus{} // [] rather than null
		}
		return json.NewEncoder(a.stdout).Encode(map[string]any{"outboxes": outboxes})
	}
	if watch && isTerminal(a.stdout) {
		fmt.Fprint(a.stdout, "\x1b[H\x1b[2J") // home, clear
	}
	if len(outboxes) == 0 {
		fmt.Fprintln(a.stdout, "There is no outbox yet: penstock outbox create NAME makes one.")
		return nil
	}
	return writeStatus(a.stdout, outboxes, time.Now())
}
