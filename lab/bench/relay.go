package main

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/lab/measure"
)

func relayCommand(a *app) *cobra.Command {
	f, cfg := benchFlags{}, measure.DefaultRelay
	pin := false
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Measure the relay between a database and a broker",
		Long: `Measure, in one run and on the same messages:

  read_ceiling    how fast the backlog can be fetched, sent nowhere
  broker_ceiling  how fast the broker confirms the same messages from memory
  relay           a relay that drains the backlog, from its start until the
                  broker has confirmed the last message
  ratio           relay / broker_ceiling; ratio_of_lower_ceiling is that over the
                  lower of the two: some brokers take more than a database gives
  latency_ms      from the commit's answer to a consumer of the broker, at a
                  steady rate of single-message transactions
  cpu, memory     of this process while the relay drains

The run makes a schema (PostgreSQL) or a file (SQLite), an outbox and queues of
its own and removes them. Without --database-url it uses a temporary SQLite file.

--pin holds a REPEATABLE READ snapshot from before the first message on, as a
forgotten transaction or a pg_dump does; with --repeat 10 the rates of the
drains and the size of the outbox show whether it stays flat. --delay has the database
further away, over a proxy in this process.`,
		Example: `  bench relay
  bench relay --database-url postgres://postgres@localhost/postgres --sink amqp://guest:guest@localhost/
  bench relay --database-url postgres://postgres@localhost/postgres --sink kafka://localhost:9092
  bench relay --database-url postgres://postgres@localhost/postgres --sink discard --json
  bench relay --database-url postgres://postgres@localhost/postgres --sink discard --messages 100000 --repeat 10 --pin`,
		PreRunE: valid(&cfg),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runBench(a, cmd, f, benchRelayTable, func(ctx context.Context, b benchOn) (measure.RelayResult, error) {
				cfg.Setup = b.setup
				if pin {
					if strings.HasPrefix(b.url, "sqlite:") {
						return measure.RelayResult{}, terminal.Usage(errors.New("--pin needs PostgreSQL: pass --database-url postgres://…"))
					}
					cfg.Pin = measure.PinPostgres(b.url)
				}
				return measure.Relay(ctx, cfg)
			})
		},
	}
	f.register(cmd, &cfg.PayloadBytes)
	flags := cmd.Flags()
	flags.IntVar(&cfg.Messages, "messages", cfg.Messages, "messages per backlog")
	flags.IntVar(&cfg.Keys, "keys", cfg.Keys, "different keys, 0 for messages without a key")
	flags.IntVar(&cfg.Repeat, "repeat", cfg.Repeat, "pairs of ceiling and drain; the median counts")
	flags.IntVar(&cfg.Rate, "rate", cfg.Rate, "messages per second of the latency phase")
	flags.DurationVar(&cfg.LatencyFor, "latency-for", cfg.LatencyFor, "length of the latency phase, 0 to leave it out")
	flags.DurationVar(&cfg.IdleFor, "idle-for", cfg.IdleFor, "how long to watch an idle relay, 0 to leave it out")
	flags.IntVar(&cfg.Relays, "relays", cfg.Relays, "relays that share the subscription (portable profile)")
	flags.IntVar(&cfg.MaxInFlight, "max-in-flight", cfg.MaxInFlight, "messages that each relay has fetched and not settled, at most (default that of a relay)")
	flags.DurationVar(&f.delay, "delay", 0, "how much longer each round trip to the database takes (PostgreSQL)")
	flags.BoolVar(&pin, "pin", false, "hold a snapshot open throughout (PostgreSQL)")
	flags.BoolVar(&cfg.SkipCeiling, "relay-only", cfg.SkipCeiling, "measure no ceilings")
	return cmd
}

func benchRelayTable(w io.Writer, r measure.RelayResult) error {
	t := newFigures(w)
	t.row("messages", "%d of %d bytes, %d keys, %d rounds", r.Messages, r.PayloadBytes, r.Keys, len(r.Drains))
	if r.BrokerCeiling > 0 {
		t.row("read ceiling", "%.0f messages/s", r.ReadCeiling)
		t.row("broker ceiling", "%.0f messages/s", r.BrokerCeiling)
	}
	t.row("relay", "%.0f messages/s", r.Relay)
	if r.BrokerCeiling > 0 {
		t.row("ratio", "%s of the broker ceiling, %.2f of the lower ceiling", ratios(r.Ratio, r.Ratios), r.RatioOfLower)
	}
	if l := r.LatencyMS; l != nil {
		t.row("latency", "p50 %.1f ms, p99 %.1f ms, max %.1f ms from commit to %s", l.P50, l.P99, l.Max, l.To)
	}
	t.row("CPU", "%.2f s per 100,000 messages", r.CPUSecondsPer100k)
	t.row("peak memory", "%.0f MiB", r.PeakRSSMB)
	if r.IdleDatabaseCPU != nil {
		t.row("idle", "%.2f %% of a core of the database", *r.IdleDatabaseCPU)
	}
	if len(r.Drains) > 1 {
		t.row("flatness", "last drain at %.2f of the first's rate, pinned: %v", r.FlatnessLastToFirst, r.Pinned)
	}
	t.row("outbox size", "%s at first, %s at most, %s when caught up", terminal.Size(r.SizeFloor), terminal.Size(r.SizePeak), terminal.Size(r.SizeAfter))
	return t.flush()
}
