package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/config"
)

func (a *app) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure Penstock beside the ceilings of this machine",
		Long: `Measure Penstock beside the ceilings of this machine, in one run: figures mean
little alone, ratios carry over.`,
		Args: knownVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.benchRelayCommand())
	return cmd
}

type benchRelayFlags struct {
	sink               string
	messages, payload  int
	keys, repeat, rate int
	latency, idle      time.Duration
	pin, relayOnly     bool
	asJSON, progress   bool
}

func (a *app) benchRelayCommand() *cobra.Command {
	var f benchRelayFlags
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Measure the relay between a database and a broker",
		Long: `Measure, in one run and on the same messages:

  read_ceiling    how fast the backlog can be fetched, sent nowhere
  broker_ceiling  how fast the broker confirms the same messages from memory
  relay           a relay that drains the backlog, from its start until the
                  broker has confirmed the last message
  ratio           relay / broker_ceiling
  latency_ms      from the commit's answer to a consumer of the broker, at a
                  steady rate of single-message transactions
  cpu, memory     of this process while the relay drains

The run makes a schema (PostgreSQL) or a file (SQLite), an outbox and queues of
its own and removes them. Without --database-url it uses a temporary SQLite file.

--pin holds a REPEATABLE READ snapshot from before the first message on, as a
forgotten transaction or a pg_dump does; with --repeat 10 the rates of the
drains and the size of the outbox show whether it stays flat.`,
		Example: `  penstock bench relay
  penstock bench relay --database-url postgres://postgres@localhost/postgres --sink amqp://guest:guest@localhost/
  penstock bench relay --database-url postgres://postgres@localhost/postgres --sink discard --json
  penstock bench relay --database-url postgres://postgres@localhost/postgres --sink discard --messages 100000 --repeat 10 --pin`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.benchRelay(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.sink, "sink", "embedded", "amqp://…, nats://…, embedded, stdout or discard")
	flags.IntVar(&f.messages, "messages", 150_000, "messages per backlog")
	flags.IntVar(&f.payload, "payload", 200, "bytes of each payload")
	flags.IntVar(&f.keys, "keys", 1_000, "different keys, 0 for messages without a key")
	flags.IntVar(&f.repeat, "repeat", 1, "pairs of ceiling and drain; the median counts")
	flags.IntVar(&f.rate, "rate", 1_000, "messages per second of the latency phase")
	flags.DurationVar(&f.latency, "latency-for", 10*time.Second, "length of the latency phase, 0 to leave it out")
	flags.DurationVar(&f.idle, "idle-for", 5*time.Second, "how long to watch an idle relay, 0 to leave it out")
	flags.BoolVar(&f.pin, "pin", false, "hold a snapshot open throughout (PostgreSQL)")
	flags.BoolVar(&f.relayOnly, "relay-only", false, "measure no ceilings")
	flags.BoolVar(&f.asJSON, "json", false, "one JSON object instead of the table")
	flags.BoolVar(&f.progress, "progress", false, "show progress though stderr is no terminal")
	return cmd
}

func (a *app) benchRelay(cmd *cobra.Command, f benchRelayFlags) (err error) {
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	if f.messages < 1 || f.payload < 0 || f.repeat < 1 || f.rate < 1 || f.keys < 0 {
		return usage(errors.New("--messages, --repeat and --rate must be at least 1, --payload and --keys at least 0"))
	}
	log, err := a.demoLogger(cmd)
	if err != nil {
		return err
	}
	slog.SetDefault(log)
	url, schema, err := a.demoDatabase()
	if err != nil {
		return err
	}
	a.stderr.hide(url)
	a.stderr.hide(f.sink)
	name := fmt.Sprintf("bench_%08x", rand.Uint32())
	if url == "" {
		dir, err := os.MkdirTemp("", "penstock-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		url = "sqlite:" + filepath.Join(dir, "bench.db")
	}
	private := schema == "" && !strings.HasPrefix(url, "sqlite:")
	if private {
		schema = "penstock_" + name
	}
	if f.pin && strings.HasPrefix(url, "sqlite:") {
		return usage(errors.New("--pin needs PostgreSQL: pass --database-url postgres://…"))
	}
	store, err := config.OpenStore(ctx, url, schema)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	if s, ok := store.(interface{ DropSchema(context.Context) error }); ok && private {
		defer func() { err = errors.Join(err, s.DropSchema(context.WithoutCancel(ctx))) }()
	}
	progress := a.newProgress(f.progress)
	cfg := bench.RelayConfig{
		Store: store, Outbox: name, SinkURL: f.sink,
		OpenSink: func(url string) (penstock.Sink, error) {
			s, err := config.ParseSink(url)
			if err != nil {
				return nil, err
			}
			return s.Open(log)
		},
		Messages: f.messages, PayloadBytes: f.payload, Keys: orNegative(f.keys), Repeat: f.repeat, Rate: f.rate,
		LatencyFor: orNegative(f.latency), IdleFor: orNegative(f.idle), SkipCeiling: f.relayOnly,
		Log: log, Progress: progress.show,
	}
	if f.pin {
		cfg.Pin = bench.PinPostgres(url)
	}
	result, err := bench.Relay(ctx, cfg)
	progress.clear()
	if err != nil {
		return err
	}
	if f.asJSON {
		return json.NewEncoder(a.stdout).Encode(result)
	}
	return benchRelayTable(a.stdout, result)
}

// orNegative hands a zero on as -1: for the benchmark zero means the default.
func orNegative[T int | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}

func benchRelayTable(w io.Writer, r bench.RelayResult) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t"+format+"\n", append([]any{name}, args...)...)
	}
	row("messages", "%d of %d bytes, %d keys, %d rounds", r.Messages, r.PayloadBytes, r.Keys, len(r.Drains))
	if r.BrokerCeiling > 0 {
		row("read ceiling", "%.0f messages/s", r.ReadCeiling)
		row("broker ceiling", "%.0f messages/s", r.BrokerCeiling)
	}
	row("relay", "%.0f messages/s", r.Relay)
	if r.BrokerCeiling > 0 {
		row("ratio", "%.2f of the broker ceiling", r.Ratio)
	}
	if l := r.LatencyMS; l != nil {
		row("latency", "p50 %.1f ms, p99 %.1f ms, max %.1f ms from commit to %s", l.P50, l.P99, l.Max, l.To)
	}
	row("CPU", "%.2f s per 100,000 messages", r.CPUSecondsPer100k)
	row("peak memory", "%.0f MiB", r.PeakRSSMB)
	if r.IdleDatabaseCPU != nil {
		row("idle", "%.2f %% of a core of the database", *r.IdleDatabaseCPU)
	}
	if len(r.Drains) > 1 {
		row("flatness", "last drain at %.2f of the first's rate, pinned: %v", r.FlatnessLastToFirst, r.Pinned)
	}
	row("outbox size", "%s at first, %s at most, %s when caught up", size(r.SizeFloor), size(r.SizePeak), size(r.SizeAfter))
	return t.Flush()
}
