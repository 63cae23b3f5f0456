package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tcpproxy"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/writer"
)

// BufferingConfig is one run of buffering.
type BufferingConfig struct {
	Database
	Store penstock.Store

	Publishes    int           // in one transaction; default 100,000
	Delay        time.Duration // added to each round trip in the second half; default 1 ms, negative: no such half
	Callers      []int         // of the writer; default 1, 8, 64, 200
	Duration     time.Duration // of each of those, and as long without the writer; default 3 s, negative: none
	PayloadBytes int
}

// BufferingResult has the ways to publish in one transaction, and producers without one.
type BufferingResult struct {
	Publishes    int     `json:"publishes"`
	PayloadBytes int     `json:"payload_bytes"`
	DelayMS      float64 `json:"delay_ms"` // 0: not measured

	Ways    []BufferingWay `json:"ways"`
	Delayed []BufferingWay `json:"delayed"` // the same with the delay
	// Of the buffer: its flushes, its throughput over that of one bulk statement, and over
	// that of one INSERT each.
	Flushes                  int                          `json:"flushes"`
	FlushesBy                map[penstock.FlushReason]int `json:"flushes_by"`
	RatioToBulk              float64                      `json:"ratio_to_bulk"`
	SpeedupOverSingle        float64                      `json:"speedup_over_single"`
	SpeedupOverSingleDelayed float64                      `json:"speedup_over_single_delayed"`

	Writers []BufferingWriter `json:"writers"`
}

// BufferingWay is how messages were published.
type BufferingWay struct {
	Name      string  `json:"name"`
	Messages  int     `json:"messages"` // fewer where each takes a round trip that is delayed
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
}

// BufferingWriter is so many callers, each with one message at a time.
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
	waySingle = "one INSERT each"
	wayBuffer = "the buffer"
	wayBulk   = "one statement"
	wayCopy   = "COPY"
)

// SetDefaults fills in what is not set.
func (c *BufferingConfig) SetDefaults() {
	c.Publishes = cmp.Or(c.Publishes, 100_000)
	c.Delay = cmp.Or(c.Delay, time.Millisecond)
	c.Duration = cmp.Or(c.Duration, 3*time.Second)
	if c.Callers == nil {
		c.Callers = []int{1, 8, 64, 200}
	}
}

// Validate says what cannot be measured.
func (c BufferingConfig) Validate() error {
	c.SetDefaults()
	if c.Publishes < 100 {
		return errors.New("it takes at least 100 publishes")
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
	if cfg.Delay > 0 {
		if err := cfg.delayed(ctx, &r); err != nil {
			return r, err
		}
	}
	if cfg.Duration > 0 {
		for _, callers := range cfg.Callers {
			w, err := cfg.writers(ctx, callers)
			if err != nil {
				return r, err
			}
			r.Writers = append(r.Writers, w)
		}
	}
	return r, nil
}

func perSecond(ways []BufferingWay, name string) float64 {
	for _, w := range ways {
		if w.Name == name {
			return w.PerSecond
		}
	}
	return 0
}

func (c BufferingConfig) delayed(ctx context.Context, r *BufferingResult) error {
	u, err := url.Parse(c.URL)
	if err != nil || u.Hostname() == "" {
		return errors.New("the delay needs a database URL with one host: leave it out")
	}
	proxy, err := tcpproxy.Start(net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "5432")))
	if err != nil {
		return err
	}
	defer proxy.Close()
	proxy.Delay(c.Delay / 2) // each way
	u.Host = proxy.Addr()
	r.DelayMS = c.Delay.Seconds() * 1000
	if r.Delayed, err = c.ways(ctx, u.String(), max(100, c.Publishes/50), nil); err != nil {
		return err
	}
	r.SpeedupOverSingleDelayed = over(perSecond(r.Delayed, wayBuffer), perSecond(r.Delayed, waySingle))
	return nil
}

// ways measures all on a server, one INSERT each with so many messages.
func (c BufferingConfig) ways(ctx context.Context, at string, singles int, r *BufferingResult) (ways []BufferingWay, err error) {
	for _, name := range []string{waySingle, wayBuffer, wayBulk, wayCopy} {
		n := c.Publishes
		if name == waySingle {
			n = singles
		}
		c.progress("%s: %d messages", name, n)
		took, err := c.one(ctx, at, name, n, r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		ways = append(ways, BufferingWay{Name: name, Messages: n, Seconds: took.Seconds(), PerSecond: over(float64(n), took.Seconds())})
	}
	return ways, nil
}

// inOutbox runs do with an outbox of its own.
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
	outbox := postgres.NewOutbox(c.Schema, c.Name)
	err = c.inOutbox(ctx, func() error {
		began := time.Now()
		tx, err := db.Begin(ctx)
		if err != nil {
			return err
		}
		switch name {
		case wayBulk:
			err = outbox.Publish(ctx, tx, msgs...)
		case wayCopy:
			_, err = tx.CopyFrom(ctx, pgx.Identifier{c.Schema, c.Name}, []string{"key", "topic", "payload"}, pgx.CopyFromSlice(n, func(i int) ([]any, error) {
				return []any{msgs[i].Key, msgs[i].Topic, msgs[i].Payload}, nil
			}))
		default:
			for i := 0; i < n && err == nil; i++ {
				err = outbox.Publish(ctx, tx, msgs[i])
			}
		}
		if err == nil {
			err = tx.Commit(ctx)
		}
		took = time.Since(began)
		if b, ok := tx.(*postgres.BufferedTx); ok && r != nil {
			r.Flushes, r.FlushesBy = b.Stats().Flushed(), b.Stats().Flushes
		}
		return err
	})
	return took, err
}

// writers measures callers, each in a commit of its own and then by one writer.
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

// call has so many callers publish, each one message after another.
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
