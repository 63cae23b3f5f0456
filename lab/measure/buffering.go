package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/sqlite"
	"github.com/penstock/penstock/writer"
)

// BufferingConfig is one run of buffering.
type BufferingConfig struct {
	Database
	Store driver.Store

	Publishes    int             // in one transaction; default 100,000
	Delays       []time.Duration // added to each round trip, in turn, once it was measured without; default 1 and 5 ms; 0: none
	Callers      []int           // of the writer; default 1, 8, 64, 200
	Duration     time.Duration   // of each of those, and as long without the writer; default 3 s, negative: none
	PayloadBytes int
}

// BufferingResult has the ways to publish in one transaction, and producers without one.
type BufferingResult struct {
	Publishes    int `json:"publishes"`
	PayloadBytes int `json:"payload_bytes"`

	Ways    []BufferingWay     `json:"ways"`
	Delayed []BufferingDelayed `json:"delayed"` // the same with each delay
	// Of the buffer: its flushes, its throughput over that of one bulk statement, and over
	// that of one INSERT each.
	Flushes              int                          `json:"flushes"`
	FlushesBy            map[penstock.FlushReason]int `json:"flushes_by"`
	RatioToBulk          float64                      `json:"ratio_to_bulk"`
	SpeedupOverSingle    float64                      `json:"speedup_over_single"`
	SpeedupOverSingle1ms float64                      `json:"speedup_over_single_1ms"` // 0 unless 1 ms is one of the delays

	Writers       []BufferingWriter `json:"writers"`
	WritersSQLite []BufferingWriter `json:"writers_sqlite"` // on a file in the folder for temporary ones
}

// BufferingWay is how messages were published.
type BufferingWay struct {
	Name      string  `json:"name"`
	Messages  int     `json:"messages"` // fewer where each takes a round trip that is delayed
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
	Flushes   int     `json:"flushes"` // how often it waits for the server
	// Published is the same with 100,000 rows, as BufferingSource has it; nil if that does not.
	Published *BufferingPublished `json:"published,omitempty"`
}

// BufferingPublished is one of the published figures.
type BufferingPublished struct {
	Seconds float64 `json:"seconds"`
	Flushes int     `json:"flushes"`
}

// BufferingSource is where they were.
const BufferingSource = `"Write Buffering to Reduce Raft Consensus Latency" (Franck Pachot, YugabyteDB, 2025)`

var bufferingPublished = map[string]*BufferingPublished{
	wayBuffer: {3.6, 33}, wayConflict: {139.7, 100_000}, waySet: {1.6, 33}, wayTrigger: {94.3, 100_000},
}

// BufferingDelayed is every way with the given time added to each round trip.
type BufferingDelayed struct {
	DelayMS           float64        `json:"delay_ms"`
	Ways              []BufferingWay `json:"ways"`
	SpeedupOverSingle float64        `json:"speedup_over_single"`
}

// BufferingWriter is a number of callers, each with one message at a time.
type BufferingWriter struct {
	Callers             int     `json:"callers"`
	AutocommitPerSecond float64 `json:"autocommit_per_second"`
	AutocommitP99MS     float64 `json:"autocommit_p99_ms"`
	WriterPerSecond     float64 `json:"writer_per_second"`
	WriterP99MS         float64 `json:"writer_p99_ms"`
	Commits             int64   `json:"commits"` // of the writer
	Speedup             float64 `json:"speedup"`
}

// The ways to publish.
const (
	waySingle   = "one INSERT each"
	wayConflict = "ON CONFLICT DO NOTHING each"
	wayTrigger  = "a row trigger, one statement"
	wayBuffer   = "the buffer"
	waySet      = "ON CONFLICT DO NOTHING, set-based"
	wayBulk     = "one statement"
	wayCopy     = "COPY"
)

// roundTrips are the ways that take one for each message.
var roundTrips = []string{waySingle, wayConflict}

// SetDefaults fills in the unset fields.
func (c *BufferingConfig) SetDefaults() {
	c.Publishes = cmp.Or(c.Publishes, 100_000)
	if c.Delays == nil {
		c.Delays = []time.Duration{time.Millisecond, 5 * time.Millisecond}
	}
	c.Duration = cmp.Or(c.Duration, 3*time.Second)
	if c.Callers == nil {
		c.Callers = []int{1, 8, 64, 200}
	}
}

// Validate refuses values that cannot be measured.
func (c BufferingConfig) Validate() error {
	c.SetDefaults()
	if c.Publishes < 100 {
		return errors.New("it takes at least 100 publishes")
	}
	if slices.ContainsFunc(c.Delays, func(d time.Duration) bool { return d < 0 }) {
		return errors.New("a delay is negative: leave it out, or give 0 for none")
	}
	for _, n := range c.Callers {
		if n < 1 || n > 10_000 {
			return fmt.Errorf("%d callers cannot be measured: ask for 1 to 10000", n)
		}
	}
	if c.PayloadBytes < 0 || c.PayloadBytes > 10_000 {
		return errors.New("the payload must have 0 to 10000 bytes: all of them are in one statement")
	}
	return nil
}

// Buffering publishes in one transaction, in each way, and then with producers that have none.
func Buffering(ctx context.Context, cfg BufferingConfig) (r BufferingResult, err error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return r, err
	}
	r = BufferingResult{Publishes: cfg.Publishes, PayloadBytes: cfg.PayloadBytes}
	if r.Ways, err = cfg.ways(ctx, cfg.URL, cfg.Publishes, &r); err != nil {
		return r, err
	}
	r.RatioToBulk = over(perSecond(r.Ways, wayBuffer), perSecond(r.Ways, wayBulk))
	r.SpeedupOverSingle = over(perSecond(r.Ways, wayBuffer), perSecond(r.Ways, waySingle))
	for _, delay := range cfg.Delays {
		if delay == 0 { // it is measured
			continue
		}
		d, err := cfg.delayed(ctx, delay)
		if err != nil {
			return r, err
		}
		if r.Delayed = append(r.Delayed, d); delay == time.Millisecond {
			r.SpeedupOverSingle1ms = d.SpeedupOverSingle
		}
	}
	if cfg.Duration > 0 {
		if r.Writers, err = cfg.allWriters(ctx); err == nil {
			r.WritersSQLite, err = cfg.onSQLite(ctx)
		}
	}
	return r, err
}

// onSQLite is allWriters in a separate file, where a commit's fsync is the whole price.
func (c BufferingConfig) onSQLite(ctx context.Context) (all []BufferingWriter, err error) {
	dir, err := os.MkdirTemp("", "penstock-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "bench.db"), sqlite.Options{BusyTimeout: time.Minute})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Migrate(ctx); err != nil {
		return nil, err
	}
	c.Store = store
	return c.allWriters(ctx)
}

func (c BufferingConfig) allWriters(ctx context.Context) (all []BufferingWriter, err error) {
	for _, callers := range c.Callers {
		w, err := c.writers(ctx, callers)
		if err != nil {
			return all, err
		}
		all = append(all, w)
	}
	return all, nil
}

func perSecond(ways []BufferingWay, name string) float64 {
	for _, w := range ways {
		if w.Name == name {
			return w.PerSecond
		}
	}
	return 0
}

func (c BufferingConfig) delayed(ctx context.Context, delay time.Duration) (d BufferingDelayed, err error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Hostname() == "" {
		return d, errors.New("the delay needs a database URL with one host: leave it out")
	}
	proxy, err := tcpproxy.Start(net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "5432")))
	if err != nil {
		return d, err
	}
	defer proxy.Close()
	proxy.Delay(delay / 2) // each way
	u.Host = proxy.Addr()
	d.DelayMS = delay.Seconds() * 1000
	d.Ways, err = c.ways(ctx, u.String(), max(100, c.Publishes/50), &BufferingResult{})
	d.SpeedupOverSingle = over(perSecond(d.Ways, wayBuffer), perSecond(d.Ways, waySingle))
	return d, err
}

// ways measures all on a server, those that take a round trip a message with the given number.
func (c BufferingConfig) ways(ctx context.Context, at string, singles int, r *BufferingResult) (ways []BufferingWay, err error) {
	for _, name := range []string{waySingle, wayConflict, wayTrigger, wayBuffer, waySet, wayBulk, wayCopy} {
		n := c.Publishes
		if slices.Contains(roundTrips, name) {
			n = singles
		}
		c.progress("%s: %d messages", name, n)
		took, err := c.one(ctx, at, name, n, r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		way := BufferingWay{Name: name, Messages: n, Seconds: took.Seconds(), PerSecond: over(float64(n), took.Seconds()), Flushes: 1, Published: bufferingPublished[name]}
		if slices.Contains(roundTrips, name) {
			way.Flushes = n
		} else if name == wayBuffer {
			way.Flushes = r.Flushes
		}
		ways = append(ways, way)
	}
	return ways, nil
}

// inOutbox runs do with a separate outbox.
func (c BufferingConfig) inOutbox(ctx context.Context, do func() error) (err error) {
	if err := c.Store.CreateOutbox(ctx, c.Name); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Store.DropOutbox(context.WithoutCancel(ctx), c.Name)) }()
	return do()
}

func (c BufferingConfig) message(n int) penstock.Message {
	return penstock.Message{Key: fmt.Sprint(n % 1000), Topic: "event", Payload: make([]byte, c.PayloadBytes)}
}

// bufferingTables are a business table whose trigger publishes each row, and one that knows what it has, both gone with the
// connection.
const bufferingTables = `
create temporary table business (id bigint, payload bytea);
create temporary table known (id bigint primary key, payload bytea);
create function pg_temp.publish_row() returns trigger language plpgsql as $f$
begin
    insert into %s (key, topic, payload) values ((new.id %% 1000)::text, 'event', new.payload);
    return new;
end $f$;
create trigger publish before insert on business for each row execute function pg_temp.publish_row();`

// one publishes n messages in one transaction and returns how long it took, begin and commit included.
func (c BufferingConfig) one(ctx context.Context, at, name string, n int, r *BufferingResult) (took time.Duration, err error) {
	config, err := pgxpool.ParseConfig(at) // which knows what the URL says of pools
	if err != nil {
		return 0, err
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var db interface {
		Begin(context.Context) (pgx.Tx, error)
	} = conn
	if name == wayBuffer {
		db = postgres.NewBuffered(conn, penstock.BufferOptions{})
	}
	msgs := make([]penstock.Message, n)
	for i := range msgs {
		msgs[i] = c.message(i)
	}
	store, err := postgres.Open(ctx, at, postgres.Options{Schema: c.Schema})
	if err != nil {
		return 0, err
	}
	defer func() { _ = store.Close() }()
	outbox, table := store.Outbox(c.Name), pgx.Identifier{c.Schema, c.Name}.Sanitize()
	err = c.inOutbox(ctx, func() error {
		if _, err := conn.Exec(ctx, fmt.Sprintf(bufferingTables, table)); err != nil {
			return err
		}
		began := time.Now()
		tx, err := db.Begin(ctx)
		if err != nil {
			return err
		}
		switch name {
		case wayBulk:
			err = outbox.PublishTx(ctx, tx, msgs...)
		case wayTrigger:
			_, err = tx.Exec(ctx, "insert into pg_temp.business select n, $2 from generate_series(1, $1) n", n, msgs[0].Payload)
		case wayConflict:
			for i := 0; i < n && err == nil; i++ {
				_, err = tx.Exec(ctx, "insert into pg_temp.known values ($1, $2) on conflict do nothing", i, msgs[i].Payload)
			}
		case waySet:
			ids, payloads := make([]int, n), make([][]byte, n)
			for i := range n {
				ids[i], payloads[i] = i, msgs[i].Payload
			}
			_, err = tx.Exec(ctx, "insert into pg_temp.known select * from unnest($1::bigint[], $2::bytea[]) on conflict do nothing", ids, payloads)
		case wayCopy:
			_, err = tx.CopyFrom(ctx, pgx.Identifier{c.Schema, c.Name}, []string{"key", "topic", "payload"}, pgx.CopyFromSlice(n, func(i int) ([]any, error) {
				return []any{msgs[i].Key, msgs[i].Topic, msgs[i].Payload}, nil
			}))
		default:
			for i := 0; i < n && err == nil; i++ {
				err = outbox.PublishTx(ctx, tx, msgs[i])
			}
		}
		if err == nil {
			err = tx.Commit(ctx)
		}
		took = time.Since(began)
		if b, ok := tx.(*postgres.BufferedTx); ok {
			r.Flushes, r.FlushesBy = b.Stats().Flushed(), b.Stats().Flushes
		}
		return err
	})
	return took, err
}

// writers measures callers, each in a separate commit and then by one writer.
func (c BufferingConfig) writers(ctx context.Context, callers int) (r BufferingWriter, err error) {
	r.Callers = callers
	measure := func(what string, publish func(context.Context, string, ...penstock.Message) error) (rate, p99 float64, err error) {
		c.progress("%d callers, %s", callers, what)
		err = c.inOutbox(ctx, func() (err error) {
			rate, p99, err = c.call(ctx, callers, publish)
			return err
		})
		return rate, p99, err
	}
	if r.AutocommitPerSecond, r.AutocommitP99MS, err = measure("a commit each", c.Store.Publish); err != nil {
		return r, err
	}
	w := writer.New(c.Store, writer.Options{})
	r.WriterPerSecond, r.WriterP99MS, err = measure("one writer", w.Publish)
	r.Commits, r.Speedup = w.Stats().Commits, over(r.WriterPerSecond, r.AutocommitPerSecond)
	return r, errors.Join(err, w.Close(ctx))
}

// call has the given number of callers publish, each one message after another.
func (c BufferingConfig) call(ctx context.Context, callers int, publish func(context.Context, string, ...penstock.Message) error) (rate, p99 float64, err error) {
	var (
		mu   sync.Mutex
		all  histogram
		done sync.WaitGroup
	)
	began := time.Now()
	for caller := range callers {
		done.Go(func() {
			var mine histogram
			var failed error
			for failed == nil && time.Since(began) < c.Duration {
				at := time.Now()
				if failed = publish(ctx, c.Name, c.message(caller)); failed == nil {
					mine.add(time.Since(at))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all.merge(&mine)
			err = cmp.Or(err, failed)
		})
	}
	done.Wait()
	return over(float64(all.total), time.Since(began).Seconds()), all.quantileMS(0.99), err
}
