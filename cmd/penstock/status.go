package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
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

  backlog   committed messages that are not settled yet
  oldest    the age of the oldest of them
  rate      messages settled per second over about the last minute
  dead      dead letters: messages refused for good, kept until someone decides
  holder    the relay that has the subscription's lease, and until when
  size      what the outbox takes on disk
  segments  of its ring, on PostgreSQL, and the one that is written to

A backlog that grows while a holder is shown means that the sink does not keep
up or is down: the relay's log tells which. No holder means that no relay runs.`,
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
	return nil, fmt.Errorf("outbox %q: %w", only[0], penstock.ErrNoOutbox)
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
	return statusTable(a.stdout, outboxes)
}

func statusTable(w io.Writer, outboxes []penstock.OutboxStatus) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "OUTBOX\tSIZE\tSEGMENTS\tSUBSCRIPTION\tBACKLOG\tOLDEST\tRATE\tSETTLED\tDEAD\tHOLDER")
	for _, o := range outboxes {
		head := fmt.Sprintf("%s\t%s\t%s", o.Outbox, size(o.Bytes), segments(o.Segments))
		if len(o.Subscriptions) == 0 {
			fmt.Fprintf(t, "%s\t(none)\t\t\t\t\t\t\n", head)
		}
		for i, s := range o.Subscriptions {
			if i > 0 {
				head = "\t\t"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", head, s.Subscription, count(s.Backlog), age(s.OldestAge),
				rate(s.Rate), count(s.Settled), count(s.DeadLetters), holder(s))
		}
	}
	return t.Flush()
}

// segments shows the size of the ring and where the writers are in it.
func segments(ring []penstock.SegmentStatus) string {
	if len(ring) == 0 {
		return "-"
	}
	for _, s := range ring {
		if s.Current {
			return fmt.Sprintf("%d (in %d)", len(ring), s.Slot)
		}
	}
	return fmt.Sprint(len(ring))
}

func rate(perSecond float64) string {
	if perSecond >= 10 {
		return count(int64(perSecond+0.5)) + "/s"
	}
	return fmt.Sprintf("%.1f/s", perSecond)
}

func holder(s penstock.SubscriptionStatus) string {
	if s.Holder == "" {
		return "nobody"
	}
	if left := time.Until(s.LeaseUntil); left > 0 {
		return fmt.Sprintf("%s (%s left)", s.Holder, left.Round(time.Second))
	}
	return s.Holder + " (lease ended)"
}
