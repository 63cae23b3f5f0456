package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/sqlite"
	"github.com/penstock/penstock/writer"
)

// BufferingConfig is one run of buffering.
type BufferingConfig struct {
	Setup
	Publishes int             `help:"messages of the transaction" range:"100.."`
	Delays    []time.Duration `help:"added to each round trip, in turn, once it was measured without" range:"0s.."`
	Callers   []int           `help:"how many without a transaction, one measurement each" range:"1..10000"`
	Duration  time.Duration   `help:"of each of these, 0 to leave them out" range:"0s.."`
	Payload   int             `help:"bytes of each payload" range:"0..10000"`
}

// BufferingResult has the ways to publish in one transaction, and producers without one.
type BufferingResult struct {
	Ways []BufferingWay `json:"ways"`
	// Of the buffer: its flushes, its throughput over that of one bulk statement, and over
	// that of one INSERT each.
	Flushes           int                          `json:"flushes"`
	FlushesBy         map[penstock.FlushReason]int `json:"flushes_by"`
	RatioToBulk       float64                      `json:"ratio_to_bulk"`
	SpeedupOverSingle float64                      `json:"speedup_over_single"`
	Delayed           []BufferingDelayed           `json:"delayed"` // the speedup with each delay

	Writers []BufferingWriter `json:"writers"`
}

// BufferingWay is how messages were published.
type BufferingWay struct {
	Name      string  `json:"name"`
	DelayMS   float64 `json:"delay_ms"` // added to each round trip
	Messages  int     `json:"messages"` // fewer where each takes a round trip that is delayed
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
	Flushes   int     `json:"flushes"` // how often it waits for the server
}

// BufferingDelayed is the buffer with the given time added to each round trip.
type BufferingDelayed struct {
	DelayMS           float64 `json:"delay_ms"`
	SpeedupOverSingle float64 `json:"speedup_over_single"`
}

// BufferingWriter is a number of callers, each with one message at a time.
type BufferingWriter struct {
	Store               string  `json:"store"`
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
	waySingle = "one INSERT each"
	wayBuffer = "the buffer"
	wayBulk   = "one statement"
	wayCopy   = "COPY"
)

// DefaultBuffering is measured unless flags say otherwise.
var DefaultBuffering = BufferingConfig{
	Publishes: 100_000, Delays: []time.Duration{time.Millisecond, 5 * time.Millisecond}, Callers: []int{1, 8, 64, 200}, Duration: 3 * time.Second, Payload: 200,
}

// Conns is how many callers without a transaction commit at a time.
func (c *BufferingConfig) Conns() int { return 64 }

// Buffering publishes in one transaction, in each way, and then with producers that have none.
func Buffering(ctx context.Context, cfg BufferingConfig) (r BufferingResult, err error) {
	rates, err := cfg.ways(ctx, cfg.URL, 0, &r)
	if err != nil {
		return r, err
	}
	r.RatioToBulk, r.SpeedupOverSingle = over(rates[wayBuffer], rates[wayBulk]), over(rates[wayBuffer], rates[waySingle])
	for _, delay := range cfg.Delays {
		if err := cfg.delayed(ctx, delay, &r); err != nil {
			return r, err
		}
	}
	if cfg.Duration <= 0 {
		return r, nil
	}
	for _, on := range []func(context.Context, *BufferingResult) error{cfg.writers, cfg.onSQLite} {
		if err := on(ctx, &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

// delayed measures all ways behind a proxy.
func (c BufferingConfig) delayed(ctx context.Context, delay time.Duration, r *BufferingResult) error {
	far, remove, err := Distant(c.URL, delay)
	if err != nil {
		return err
	}
	defer remove()
	rates, err := c.ways(ctx, far, delay, r)
	r.Delayed = append(r.Delayed, BufferingDelayed{delay.Seconds() * 1000, over(rates[wayBuffer], rates[waySingle])})
	return err
}

// ways measures all on a server, and returns their rates. Where there is a delay, one INSERT each has a fiftieth of the messages.
func (c BufferingConfig) ways(ctx context.Context, at string, delay time.Duration, r *BufferingResult) (rates map[string]float64, err error) {
	rates = map[string]float64{}
	for _, name := range []string{waySingle, wayBuffer, wayBulk, wayCopy} {
		way := BufferingWay{Name: name, DelayMS: delay.Seconds() * 1000, Messages: c.Publishes, Flushes: 1}
		if name == waySingle && delay > 0 {
			way.Messages = max(100, c.Publishes/50)
		}
		c.progress("%s: %d messages", name, way.Messages)
		took, err := c.one(ctx, at, name, way.Messages, r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		way.Seconds, way.PerSecond = took.Seconds(), over(float64(way.Messages), took.Seconds())
		switch name {
		case waySingle:
			way.Flushes = way.Messages
		case wayBuffer:
			way.Flushes = r.Flushes
		}
		rates[name], r.Ways = way.PerSecond, append(r.Ways, way)
	}
	return rates, nil
}

// inOutbox runs do with a separate outbox.
func (c BufferingConfig) inOutbox(ctx context.Context, do func(context.Context) error) (err error) {
	return (&rig{Setup: c.Setup, outbox: c.Name}).inOutbox(ctx, do)
}

func (c BufferingConfig) message(n int) penstock.Message {
	return penstock.Message{Key: fmt.Sprint(n % 1000), Topic: "event", Payload: make([]byte, c.Payload)}
}

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
	outbox := c.Store.(*postgres.Store).Outbox(c.Name)
	return took, c.inOutbox(ctx, func(ctx context.Context) error {
		began := time.Now()
		tx, err := db.Begin(ctx)
		if err != nil {
			return err
		}
		switch name {
		case wayBulk:
			err = outbox.PublishTx(ctx, tx, msgs...)
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
}

// onSQLite is writers in a separate file, where a commit's fsync is the whole price.
func (c BufferingConfig) onSQLite(ctx context.Context, r *BufferingResult) (err error) {
	dir, err := os.MkdirTemp("", "penstock-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "bench.db"), sqlite.Options{BusyTimeout: time.Minute})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	c.Store = store
	return c.writers(ctx, r)
}

// writers measures callers, each in a separate commit and then by one writer.
func (c BufferingConfig) writers(ctx context.Context, r *BufferingResult) error {
	for _, callers := range c.Callers {
		on := BufferingWriter{Store: "PostgreSQL", Callers: callers}
		if _, is := c.Store.(*sqlite.Store); is {
			on.Store = "SQLite"
		}
		w := writer.New(c.Store, writer.Options{})
		for _, side := range []struct {
			what      string
			rate, p99 *float64
			publish   func(context.Context, string, ...penstock.Message) error
		}{{"a commit each", &on.AutocommitPerSecond, &on.AutocommitP99MS, c.Store.Publish}, {"one writer", &on.WriterPerSecond, &on.WriterP99MS, w.Publish}} {
			c.progress("%s, %d callers, %s", on.Store, callers, side.what)
			if err := c.inOutbox(ctx, func(ctx context.Context) (err error) {
				*side.rate, *side.p99, err = c.call(ctx, callers, side.publish)
				return err
			}); err != nil {
				return errors.Join(err, w.Close(ctx))
			}
		}
		on.Commits, on.Speedup = w.Stats().Commits, over(on.WriterPerSecond, on.AutocommitPerSecond)
		r.Writers = append(r.Writers, on)
		if err := w.Close(ctx); err != nil {
			return err
		}
	}
	return nil
}

// call has the given number of callers publish, each one message after another.
func (c BufferingConfig) call(ctx context.Context, callers int, publish func(context.Context, string, ...penstock.Message) error) (rate, p99 float64, err error) {
	var mu sync.Mutex
	all := newHistogram()
	began := time.Now()
	err = together(ctx, callers, func(ctx context.Context, caller int) error {
		for ctx.Err() == nil && time.Since(began) < c.Duration {
			at := time.Now()
			if err := publish(ctx, c.Name, c.message(caller)); err != nil {
				return err
			}
			mu.Lock()
			all.add(time.Since(at))
			mu.Unlock()
		}
		return nil
	})
	return over(float64(all.TotalCount()), time.Since(began).Seconds()), all.quantileMS(0.99), err
}
