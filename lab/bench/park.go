package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/lab/measure"
)

func parkCommand(a *app) *cobra.Command {
	f, cfg := benchFlags{}, measure.DefaultPark
	cmd := &cobra.Command{
		Use:   "park",
		Short: "Measure how parked messages drain, and that memory stays flat",
		Long: `Have a whole topic refused, so that all of its messages are parked while another
topic flows; then let the sink accept them:

  normal  messages/s when the relay drains the same messages from the outbox
  drain   messages/s when it drains them from the park: from the moment when the
          sink accepts to the last confirm, the wait for the next attempt included
  ratio   drain / normal
  memory  peaks of this process in all three phases (an embedded broker included):
          parking must not grow with what is parked
  size    of the outbox with its park

Afterwards a consumer reads the broker and checks that the parked messages came
in order of each key, and none was lost: exit code 3 otherwise. Where no consumer can
read the sink, its confirms are checked.

What is parked waits for its next attempt for up to --retry-max. In this
benchmark that is short, as the wait is not what it measures.`,
		Example: `  bench park
  bench park --database-url postgres://postgres@localhost/postgres --sink amqp://guest:guest@localhost/ --repeat 5
  bench park --messages 10000 --keys 10000 --json`,
		PreRunE: valid(&cfg),
		RunE:    measures(a, &f, &cfg, benchParkTable, measure.Park),
	}
	f.register(cmd, &cfg.PayloadBytes)
	f.logLevel = "error" // that the sink refuses is expected here
	flags := cmd.Flags()
	flags.IntVar(&cfg.Messages, "messages", cfg.Messages, "messages to park; a quarter as many flow")
	flags.IntVar(&cfg.Keys, "keys", cfg.Keys, "different keys of each topic, 0 for messages without a key")
	flags.IntVar(&cfg.Repeat, "repeat", cfg.Repeat, "pairs of normal run and parking; the median counts")
	flags.DurationVar(&cfg.RetryMax, "retry-max", cfg.RetryMax, "longest time between two attempts")
	return cmd
}

func benchParkTable(w io.Writer, r measure.ParkResult) error {
	t := newFigures(w)
	t.row("messages", "%d of %d bytes, %d keys", r.Messages, r.PayloadBytes, r.Keys)
	t.row("normal", "%.0f messages/s from the outbox", r.Normal)
	t.row("parking", "%.0f messages/s, %d attempts refused, %d parked", r.Parking, r.Refused, r.Parked)
	t.row("drain", "%.0f messages/s from the park, the first after %.0f ms", r.Drain, r.FirstAfterMS)
	t.row("ratio", "%s of the normal rate", ratios(r.Ratio, r.Ratios))
	t.row("peak memory", "%.0f MiB normally, %.0f while parking, %.0f while draining", r.NormalUse.RSSMB, r.ParkingUse.RSSMB, r.DrainUse.RSSMB)
	t.row("peak live heap", "%.1f MiB normally, %.1f while parking, %.1f while draining", r.NormalUse.HeapMB, r.ParkingUse.HeapMB, r.DrainUse.HeapMB)
	t.row("outbox size", "%s at first, %s with all parked, %s when drained", terminal.Size(r.SizeFloor), terminal.Size(r.SizeParked), terminal.Size(r.SizeAfter))
	t.row("delivered", "%s", checked(r.Check))
	return t.flush()
}
