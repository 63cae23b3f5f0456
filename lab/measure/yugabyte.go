package measure

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/wire"
	"github.com/penstock/penstock/store/portable"
)

// What yugabyte-simulator runs: the published experiments.
const (
	runFIFO       = "fifo"
	runLIFO       = "lifo"
	runChurn      = "churn"
	runTombstones = "tombstones"
	runBuffering  = "buffering"
)

var yugabyteRuns = []string{runFIFO, runLIFO, runChurn, runTombstones, runBuffering}

// YugabyteConfig is one run of yugabyte-simulator.
type YugabyteConfig struct {
	Setup
	Runs     []string      `help:"fifo, lifo, churn, tombstones, buffering"`
	Flush    time.Duration `help:"what a Raft flush takes in the simulator" range:"0s.."`
	Step     time.Duration `help:"what a step from one index entry to the next takes in the simulator" range:"0s.."`
	Duration time.Duration `help:"of each queue of fifo and lifo, and of churn" range:"400ms.."`
	Margin   time.Duration `help:"of churn's low-water marks, after as long a warm-up; and how far ahead fifo and lifo enqueue" range:"1ms.."`
	Events   int           `help:"of tombstones, of which the first half is consumed" range:"10.."`
	Rows     int           `help:"of buffering" range:"10.."`
}

// DefaultYugabyte is measured unless flags say otherwise.
var DefaultYugabyte = YugabyteConfig{
	Runs: yugabyteRuns, Flush: 10 * time.Millisecond, Step: 4 * time.Microsecond, Duration: 75 * time.Second, Margin: time.Minute, Events: 100_000, Rows: 2_000,
}

// Validate refuses values that cannot be measured.
func (c *YugabyteConfig) Validate() error {
	for _, run := range c.Runs {
		if !slices.Contains(yugabyteRuns, run) {
			return fmt.Errorf("%q cannot be run: choose from %v", run, yugabyteRuns)
		}
	}
	return nil
}

// YugabyteResult is of a simulator of YugabyteDB, not of YugabyteDB.
type YugabyteResult struct {
	Simulator string           `json:"simulator"`
	Curves    []SimulatedCurve `json:"curves,omitempty"`
	Fetches   []SimulatedFetch `json:"fetches,omitempty"`
	Writes    []SimulatedWrite `json:"writes,omitempty"`
	Drawn     []Line           `json:"-"`
}

// Lines are the curves, for a chart.
func (r YugabyteResult) Lines() []Line { return r.Drawn }

// SimulatedCurve is how one side of fifo, lifo or churn went, a job or a batch at a time.
type SimulatedCurve struct {
	Run            string  `json:"run"`
	By             string  `json:"by"`
	PerSecond      float64 `json:"per_second"`
	FirstPerSecond float64 `json:"first_per_second"` // of the first of twenty intervals
	LastPerSecond  float64 `json:"last_per_second"`
	FirstP50MS     float64 `json:"first_p50_ms"`
	LastP50MS      float64 `json:"last_p50_ms"`
	Degradation    float64 `json:"degradation"` // LastP50MS over FirstP50MS
	Seeks          float64 `json:"seeks"`       // of a job or row; of fifo and lifo with those of who enqueues
	Nexts          float64 `json:"nexts"`
	FirstNexts     float64 `json:"first_nexts"`
	LastNexts      float64 `json:"last_nexts"`
	Flushes        float64 `json:"flushes,omitempty"`
}

// SimulatedFetch is how the next of many events is found. FirstMS is of a process that has just started.
type SimulatedFetch struct {
	By          string  `json:"by"`
	FreshMS     float64 `json:"fresh_ms"` // before anything was deleted, the median
	FirstMS     float64 `json:"first_ms"`
	MS          float64 `json:"ms"` // the median
	Degradation float64 `json:"degradation"`
	Nexts       int64   `json:"nexts"` // of the last
}

// SimulatedWrite is how long it takes to write rows in one transaction.
type SimulatedWrite struct {
	Way     string  `json:"way"`
	Rows    int     `json:"rows"`
	Seconds float64 `json:"seconds"`
	Flushes int64   `json:"flushes"`
}

// yugabyteRun is one at work.
type yugabyteRun struct {
	YugabyteConfig
	sim    *wire.Yugabyte
	result *YugabyteResult
}

// Yugabyte runs the published experiments on a simulator, by hand and with Penstock's plain tables, in a separate database. A snapshot is
// held for as long as a run takes, so that deleted rows stay.
func Yugabyte(ctx context.Context, cfg YugabyteConfig) (result YugabyteResult, err error) {
	server, err := cfg.connect(ctx)
	if err != nil {
		return result, err
	}
	defer server.close()
	database := pgx.Identifier{cfg.Name}.Sanitize()
	if err := server.do("making a database", "create database "+database); err != nil {
		return result, err
	}
	defer func() {
		s, connected := cfg.connect(context.WithoutCancel(ctx))
		if connected == nil {
			connected = s.do("removing the database", "drop database "+database+" with (force)")
			s.close()
		}
		err = errors.Join(err, connected)
	}()
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return result, err
	}
	u.Path = "/" + cfg.Name
	sim, end, err := wire.NewYugabyte(ctx, u.String())
	if err != nil {
		return result, err
	}
	defer end()
	r := &yugabyteRun{YugabyteConfig: cfg, sim: sim, result: &result}
	sim.Flush, sim.Step = cfg.Flush, cfg.Step
	sim.Off(true)
	result.Simulator = fmt.Sprintf("a simulator of YugabyteDB in front of PostgreSQL: %v a flush, %v a step", cfg.Flush, cfg.Step)
	store, err := portable.Open(ctx, sim.URL, portable.Options{Schema: cfg.Schema})
	if err != nil {
		return result, err
	}
	defer func() { _ = store.Close() }()
	if err := store.Migrate(ctx); err != nil {
		return result, err
	}
	r.URL, r.Store, r.Setup.Simulator = sim.URL, store, sim
	for _, run := range cfg.Runs {
		if err := r.pinnedRun(ctx, run); err != nil {
			return result, fmt.Errorf("%s: %w", run, err)
		}
	}
	return result, nil
}

func (r *yugabyteRun) pinnedRun(ctx context.Context, run string) error {
	release, err := r.pinned(ctx, true)
	if err != nil {
		return err
	}
	defer release()
	r.sim.Off(false)
	defer r.sim.Off(true)
	switch run {
	case runChurn:
		return r.churn(ctx)
	case runTombstones:
		return r.tombstones(ctx)
	case runBuffering:
		return r.buffering(ctx)
	}
	return r.jobs(ctx, run)
}

// jobs arrive as published: 100 a second, for ten dequeuers that begin a minute later. FIFO begins with more, so that it does not run out of jobs.
func (r *yugabyteRun) jobs(ctx context.Context, run string) error {
	cfg := FifoLifoConfig{Setup: r.Setup, Order: penstock.QueueOrder(run), Mode: ModeCall, Workers: 10, Preload: max(100, int(100*r.Margin.Seconds())), Rate: 100, Arrivals: true, Duration: r.Duration}
	if run == runFIFO {
		cfg.Preload += int(600 * r.Duration.Seconds())
	} else {
		cfg.DequeueRate = 100
	}
	for _, side := range []struct {
		by string
		contender
	}{{"hand", jobQueue(r.Setup, cfg.Order)}, {"Penstock", penstockQueue(r.Setup, cfg.Order, ModeCall)}, {"Penstock, carried", penstockQueue(r.Setup, cfg.Order, ModeCarried)}} {
		before := r.sim.Counts()
		curve, err := cfg.measure(ctx, side.contender)
		if err != nil {
			return err
		}
		n := len(curve.Intervals)
		if n == 0 {
			return errors.New("nothing was measured: ask for more --duration")
		}
		r.add(run, side.by, curve.JobsPerSecond, curve.Intervals, curve.FirstAndLast, curve.RocksDB, curve.Intervals[0].RocksDB, curve.Intervals[max(0, n-2)].RocksDB)
		last := &r.result.Curves[len(r.result.Curves)-1]
		last.Flushes = over(float64(r.sim.Counts().Since(before).Flushes), float64(curve.Dequeued))
	}
	return nil
}

func (r *yugabyteRun) add(run, by string, perSecond float64, intervals []Interval, at FirstAndLast, calls, first, last *CallsPerJob) {
	c := SimulatedCurve{Run: run, By: by, PerSecond: perSecond, FirstP50MS: at.FirstP50MS, LastP50MS: at.LastP50MS, Degradation: over(at.LastP50MS, at.FirstP50MS)}
	if n := len(intervals); n > 0 {
		c.FirstPerSecond, c.LastPerSecond = intervals[0].PerSecond, intervals[n-1].PerSecond
	}
	for _, of := range []struct {
		calls *CallsPerJob
		nexts *float64
	}{{calls, &c.Nexts}, {first, &c.FirstNexts}, {last, &c.LastNexts}} {
		if of.calls != nil {
			*of.nexts = of.calls.Next
		}
	}
	if calls != nil {
		c.Seeks = calls.Seek
	}
	r.result.Curves = append(r.result.Curves, c)
	r.result.Drawn = append(r.result.Drawn, Line{run + ", by " + by, intervals})
}

func (r *yugabyteRun) churn(ctx context.Context) error {
	cfg := DefaultChurn
	cfg.Setup, cfg.Duration, cfg.Margin = r.Setup, r.Duration, r.Margin
	result, err := Churn(ctx, cfg)
	if err != nil {
		return err
	}
	r.add(runChurn, "hand", result.ByHand.RowsPerSecond, result.ByHand.Intervals, result.ByHand.FirstAndLast, result.ByHand.RocksDB, result.ByHand.FirstRocksDB, result.ByHand.LastRocksDB)
	r.add(runChurn, "Penstock", result.Outbox.RowsPerSecond, result.Outbox.Intervals, result.Outbox.FirstAndLast, result.Outbox.RocksDB, result.Outbox.FirstRocksDB, result.Outbox.LastRocksDB)
	return nil
}

// fetches is how often tombstones fetches for a median.
const fetches = 25

func (r *yugabyteRun) tombstones(ctx context.Context) (err error) {
	s, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	store, table := r.Store.(*portable.Store), pgx.Identifier{r.Schema, "events"}.Sanitize()
	r.sim.Off(true)
	for _, sql := range []string{
		"create table " + table + " (id int primary key, ts timestamp, data text)", "create index on " + table + " (ts asc)",
		fmt.Sprintf("insert into %s select n, timestamp '2021-02-25 08:16:00' + make_interval(mins => n), 'eventdata-' || n from generate_series(1, %d) n", table, r.Events),
		"analyze " + table,
	} {
		if err := s.do("preparing events", sql); err != nil {
			return err
		}
	}
	if err := store.CreateQueue(ctx, "events", penstock.FIFO); err != nil {
		return err
	}
	q := store.Queue("events")
	for made := 0; made < r.Events; made += 1000 {
		if _, err := q.Enqueue(ctx, make([]penstock.NewJob, min(1000, r.Events-made))...); err != nil {
			return err
		}
	}
	var id int
	byHand := func(where string) func(context.Context) error {
		return func(context.Context) error {
			return s.value("fetching", "select id from "+table+where+" order by ts limit 1", &id)
		}
	}
	claim := func(from driver.Queue) func(context.Context) error {
		return func(ctx context.Context) error {
			jobs, err := from.Claim(ctx, driver.Claim{Jobs: 1, Lease: time.Hour})
			if err == nil && len(jobs) != 1 {
				err = errors.New("a claim found nothing")
			}
			return err
		}
	}
	lastTS := fmt.Sprintf(" where ts > timestamp '2021-02-25 08:16:00' + make_interval(mins => %d)", r.Events/2)
	sides := []struct {
		by           string
		fresh, fetch func(context.Context) error
	}{{"hand", byHand(""), byHand("")}, {"hand, last_ts", byHand(""), byHand(lastTS)}, {"Penstock", claim(q), claim(q)}}
	found := make([]SimulatedFetch, len(sides))
	for i, side := range sides {
		found[i].By = side.by
		if _, found[i].FreshMS, err = r.fetch(ctx, side.fresh); err != nil {
			return err
		}
	}
	r.sim.Off(true)
	if err := s.do("deleting events", fmt.Sprintf("delete from %s where id <= %d", table, r.Events/2)); err != nil {
		return err
	}
	for left := r.Events / 2; left > 0; {
		jobs, err := q.Claim(ctx, driver.Claim{Jobs: min(left, 1000), Lease: time.Hour})
		if err != nil {
			return err
		}
		leases := make([]int64, len(jobs))
		for i, j := range jobs {
			leases[i] = j.Lease
		}
		if _, err := q.Ack(ctx, leases...); err != nil {
			return err
		}
		left -= len(jobs)
	}
	// Another process: it has passed over nothing yet.
	another, err := portable.Open(ctx, r.URL, portable.Options{Schema: r.Schema})
	if err != nil {
		return err
	}
	defer func() { _ = another.Close() }()
	sides[2].fetch = claim(another.Queue("events"))
	for i, side := range sides {
		before := r.sim.Counts()
		f := &found[i]
		if f.FirstMS, f.MS, err = r.fetch(ctx, side.fetch); err != nil {
			return err
		}
		f.Degradation, f.Nexts = over(f.MS, f.FreshMS), r.sim.Counts().Since(before).Nexts/fetches
	}
	r.result.Fetches = found
	return errors.Join(store.DropQueue(ctx, "events"), s.do("removing events", "drop table "+table))
}

// fetch returns how many milliseconds the first fetch took, and the median of all that follow.
func (r *yugabyteRun) fetch(ctx context.Context, one func(context.Context) error) (first, ms float64, err error) {
	r.sim.Off(false)
	defer r.sim.Off(true)
	var took []float64
	for range fetches {
		start := time.Now()
		if err := one(ctx); err != nil {
			return 0, 0, err
		}
		took = append(took, time.Since(start).Seconds()*1000)
	}
	return took[0], median(took[1:]), nil
}

func (r *yugabyteRun) buffering(ctx context.Context) error {
	s, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	store, table := r.Store.(*portable.Store), pgx.Identifier{r.Schema, "demo"}.Sanitize()
	rows := func(from int) string {
		return fmt.Sprintf("insert into %s (id, a, b, c) select n, 0, 0, 0 from generate_series(%d, %d) n", table, from+1, from+r.Rows)
	}
	for _, sql := range []string{
		"create table " + table + " (id bigint primary key, a int, b int, c int)",
		"create function " + pgx.Identifier{r.Schema, "set_c"}.Sanitize() + "() returns trigger language plpgsql as $$ begin new.c := new.a + new.b; return new; end $$",
	} {
		if err := s.do("preparing", sql); err != nil {
			return err
		}
	}
	if err := errors.Join(store.CreateOutbox(ctx, "demo"), store.CreateQueue(ctx, "demo_jobs", penstock.FIFO)); err != nil {
		return err
	}
	byHand := func(sql string) func() error { return func() error { return s.do("inserting", sql) } }
	for _, way := range []struct {
		way string
		do  func() error
	}{
		{"by hand, one statement", byHand(rows(0))},
		{"by hand, on conflict do nothing", byHand(rows(r.Rows) + " on conflict do nothing")},
		{"by hand, a row trigger", func() error {
			err := s.do("making the trigger", "create trigger set_c before insert or update on "+table+" for each row execute function "+pgx.Identifier{r.Schema, "set_c"}.Sanitize()+"()")
			return errors.Join(err, s.do("inserting", rows(2*r.Rows)))
		}},
		{"Penstock, published in one transaction", func() error { return store.Publish(ctx, "demo", make([]penstock.Message, r.Rows)...) }},
		{"Penstock, enqueued in one transaction", func() error {
			_, err := store.Queue("demo_jobs").Enqueue(ctx, make([]penstock.NewJob, r.Rows)...)
			return err
		}},
	} {
		r.progress("%s", way.way)
		before, start := r.sim.Counts(), time.Now()
		if err := way.do(); err != nil {
			return fmt.Errorf("%s: %w", way.way, err)
		}
		r.result.Writes = append(r.result.Writes, SimulatedWrite{way.way, r.Rows, time.Since(start).Seconds(), r.sim.Counts().Since(before).Flushes})
	}
	return errors.Join(store.DropOutbox(ctx, "demo"), store.DropQueue(ctx, "demo_jobs"), s.do("removing rows", "drop table "+table))
}
