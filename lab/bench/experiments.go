package main

import (
	"context"

	"github.com/penstock/penstock/lab/measure"
)

// experiment is a verb of bench.
type experiment struct {
	name, short     string
	new             func() run
	brokers         bool   // takes any sink; else it needs a database with queues
	sink            string // the default of --sink; no such flag without
	portable, mysql bool   // of those that need a database: other than PostgreSQL
	logLevel        string // unless --log-level is given; default warn

	all, quick string     // its flags in `bench all`, and with --quick
	ratios     []headline // of the report
}

// headline is a figure of an experiment's JSON that the report begins with.
type headline struct{ is, path, byHand, published string }

// run is one run of an experiment. Settings is a pointer to its configuration, whose fields are the flags.
type run struct {
	settings interface{ On(measure.Setup) }
	measure  func(context.Context) (any, error)
}

// of is how an experiment begins: usual is its configuration unless flags say otherwise.
func of[C, R any, P interface {
	*C
	On(measure.Setup)
}](usual C, measured func(context.Context, C) (R, error)) func() run {
	return func() run {
		cfg := usual
		return run{P(&cfg), func(ctx context.Context) (any, error) { return measured(ctx, cfg) }}
	}
}

const ofBroker = "of the broker, fed from memory"

var experiments = []experiment{
	{
		name: "relay", short: "Measure the relay between a database and a broker", new: of(measure.DefaultRelay, measure.Relay), brokers: true, sink: "embedded",
		quick: "--messages 30000 --latency-for 4s --idle-for 2s", ratios: []headline{{"the relay's rate, " + ofBroker, "ratio", "", ""}},
	},
	{
		name: "poison", short: "Measure what a key that is always refused costs the others", new: of(measure.DefaultPoison, measure.Poison), brokers: true, sink: "embedded",
		logLevel: "error", // that the sink refuses is expected here, as in the next two
		all:      "--repeat 3", quick: "--messages 10000 --repeat 1",
		ratios: []headline{{"healthy keys next to one that is always refused, of the same without", "ratio", "", ""}},
	},
	{
		name: "park", short: "Measure how parked messages drain, and that memory stays flat", new: of(measure.DefaultPark, measure.Park), brokers: true, sink: "embedded",
		logLevel: "error",
		quick:    "--messages 10000 --keys 200", ratios: []headline{{"parked messages drain, of a normal drain", "ratio", "", ""}},
	},
	{
		name: "outage", short: "Measure producers and relay while the broker is dead, and after", new: of(measure.DefaultOutage, measure.Outage), brokers: true, sink: "embedded",
		logLevel: "error",
		quick:    "--before 2s --outage 5s --ceiling-of 10000", ratios: []headline{{"the backlog of an outage drains, " + ofBroker, "ratio", "", ""}},
	},
	{
		name: "webhook", short: "Measure the relay against an endpoint that takes its time", new: of(measure.DefaultWebhook, measure.Webhook), brokers: true,
		logLevel: "error", // the sink warns of an endpoint without TLS
		all:      "--repeat 3", quick: "--messages 10000", ratios: []headline{{"requests, of net/http from memory", "ratio", "", ""}},
	},
	{
		name: "fifo-lifo", short: "Measure whether a queue slows down as it is used", new: of(measure.DefaultFifoLifo, measure.FifoLifo), portable: true, mysql: true,
		all: "--pin", quick: "--pin --preload 200000 --duration 6s", ratios: []headline{
			{"p99 of the last tenth over the first, snapshot pinned", "flatness", "baseline.flatness", ""}, {"jobs/s, of the hand-written queue's", "ratio", "", ""}},
	},
	{
		name: "tombstones", short: "Measure how the next event is found behind many that are gone", new: of(measure.DefaultTombstones, measure.Tombstones),
		all: "--pin", quick: "--pin --events 100000 --fetches 50",
		ratios: []headline{{"the next event behind many that are gone, of a fresh one's time", "worst_ratio", "cases.0.naive.ratio", ""}},
	},
	{
		name: "queue", short: "Measure how many messages and jobs go in, and jobs out", new: of(measure.DefaultQueue, measure.Queue), portable: true,
		all: "--batches 1,10,100 --workers 1,10", quick: "--batches 1,100 --workers 10 --jobs 8000 --longest 500ms",
	},
	{
		name: "steady", short: "Measure from commit to handler, at a steady rate", new: of(measure.DefaultSteady, measure.Steady),
		quick: "--rate 1000 --duration 6s", ratios: []headline{{"ms from commit to handler, p99", "latency_ms.p99", "by_hand.latency_ms.p99", ""}},
	},
	{
		name: "processor", short: "Climb a published ladder of outbox processors, then adopt its table", new: of(measure.DefaultProcessor, measure.Processor),
		sink:  "amqp://guest:guest@localhost:5672/",
		quick: "--rows 20000 --duration 2s", ratios: []headline{
			{"the adopted table, times the published baseline by hand", "ratios.factor_over_baseline", "ratios.best_rung_over_baseline", "24"},
			{"the adopted table, " + ofBroker, "ratios.adopted_over_ceiling", "ratios.best_rung_over_ceiling", ""}},
	},
	{
		name: "churn", short: "Insert and consume for long, and see whether it stays fast", new: of(measure.DefaultChurn, measure.Churn), portable: true, mysql: true,
		all: "--duration 5m --pin", quick: "--duration 12s --margin 1s --pin",
		ratios: []headline{{"a batch at the end over one at the start, snapshot pinned, adopted", "adopted.flatness", "by_hand.flatness", ""}},
	},
	{
		name: "buffering", short: "Publish one by one through the buffer, and by single and bulk statements", new: of(measure.DefaultBuffering, measure.Buffering),
		quick: "--publishes 8000 --delays 1ms --duration 500ms --callers 1,8,64", ratios: []headline{
			{"publishing one by one through the buffer, of one statement", "ratio_to_bulk", "", ""}, {"the same, times one INSERT each", "speedup_over_single", "", ""}},
	},
	{
		name: "yugabyte-simulator", short: "Run the published experiments on a simulator of YugabyteDB", new: of(measure.DefaultYugabyte, measure.Yugabyte),
		quick: "--duration 12s --margin 2s --events 20000 --rows 200",
	},
}
