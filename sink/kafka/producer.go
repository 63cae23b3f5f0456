package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"golang.org/x/sync/singleflight"
)

// producer is a client of the library with its own connections and producer id. One Send uses it at
// a time. It lives as long as a broker can be reached and answers in time. After that it is closed,
// which answers all records in flight, and a later Send makes another.
type producer struct {
	client *kgo.Client
	cfg    *Config
	log    *slog.Logger

	valve  valve       // shut while a flight is put into place
	up     atomic.Bool // a broker has answered, and nothing since raised doubts
	probes singleflight.Group

	mu     sync.Mutex
	purges sync.WaitGroup // each begins with mu held, before ended is closed
	ending sync.Once
	err    error         // why it ended
	ended  chan struct{} // closed when err is set
	closed chan struct{} // closed when no part of the client runs any more

	// For the Send that uses it.
	known         map[string]bool     // topics that exist
	unknown       map[string]struct{} // topics that do not, but the library asks for
	flight        atomic.Pointer[flight]
	flights       atomic.Uint64
	repartitioned atomic.Bool // during this flight
}

func newProducer(cfg *Config, dial dialFunc, login sasl.Mechanism, log *slog.Logger) (*producer, error) {
	p := &producer{
		cfg: cfg, log: log, ended: make(chan struct{}), closed: make(chan struct{}),
		known: map[string]bool{}, unknown: map[string]struct{}{},
	}
	options, err := cfg.options()
	if err != nil {
		return nil, err
	}
	if login != nil {
		options = append(options, kgo.SASL(login))
	}
	p.client, err = kgo.NewClient(append(options, kgo.Dialer(p.behindValve(dial)),
		kgo.RecordPartitioner(partitioner{p}), kgo.WithHooks(p), kgo.WithLogger(logger{log}), kgo.ProducerOnDataLossDetected(p.onLoss))...)
	if err != nil {
		return nil, fmt.Errorf("open a Kafka client: %w", err)
	}
	return p, nil
}

var codecs = map[string][]kgo.CompressionCodec{
	"none":   {kgo.NoCompression()},
	"gzip":   {kgo.GzipCompression()},
	"snappy": {kgo.SnappyCompression()},
	"lz4":    {kgo.Lz4Compression()},
	"zstd":   {kgo.ZstdCompression()},
}

// The library's own pace: how often it asks for metadata during a problem, and how long it waits
// between attempts.
const (
	metadataPause = 250 * time.Millisecond
	shortestPause = 20 * time.Millisecond
	longestPause  = 400 * time.Millisecond
)

func (c *Config) options() ([]kgo.Opt, error) {
	a, err := c.address()
	if err != nil {
		return nil, err
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(a.brokers...),
		kgo.ClientID(c.ClientID),
		kgo.DisableClientMetrics(), // they are pushed to the brokers, and delay closing

		// Acks from all in-sync replicas and idempotent writes are the library's defaults. They are stated
		// here because everything depends on them.
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ManualFlushing(), // see fly
		kgo.ProducerBatchCompression(codecs[c.Compression]...),
		kgo.ProducerBatchMaxBytes(int32(c.MaxMessageBytes)),
		kgo.MaxBufferedRecords(math.MaxInt32), // a Send's; the relay bounds those
		kgo.ProduceRequestTimeout(max(c.DeliveryTimeout, time.Second)),

		kgo.RequestTimeoutOverhead(max(c.ConnectTimeout, time.Second)),
		kgo.RetryBackoffFn(pause),
		kgo.MetadataMinAge(metadataPause),
		kgo.UnknownTopicRetries(2),
	}
	if c.CreateTopics {
		// Between its creation and the election of its leaders, a topic is unknown for a while.
		options = append(options, kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(20))
	}
	return options, nil
}

func pause(failures int) time.Duration {
	return min(shortestPause<<min(failures, 10), longestPause)
}

// reach makes sure that a broker answers and accepts the login. The library itself would retry
// silently.
func (p *producer) reach(ctx context.Context) error {
	if p.up.Load() {
		return nil
	}
	select {
	case r := <-p.probes.DoChan("", p.probe):
		return r.Err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *producer) probe() (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), p.cfg.ConnectTimeout)
	defer cancel()
	if err := p.client.Ping(ctx); err != nil {
		p.end(err)
		return nil, p.err // the first reason counts
	}
	p.up.Store(true)
	return nil, nil
}

// OnBrokerConnect is called by the library for each connection that it made or failed to make. A
// single unreachable broker is normal in Kafka, so it checks whether any can be reached.
func (p *producer) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil && !errors.Is(err, context.Canceled) && p.up.CompareAndSwap(true, false) {
		p.probes.DoChan("", p.probe)
	}
}

// onLoss: a broker has lost messages that it had confirmed to this client, as after the election
// of a leader that was not in sync.
func (p *producer) onLoss(topic string, partition int32) {
	p.log.Warn("Kafka has lost records of this partition that it had confirmed; see unclean.leader.election.enable and min.insync.replicas",
		"topic", topic, "partition", partition)
}

// end closes the client. Only the first reason counts.
func (p *producer) end(err error) {
	p.ending.Do(func() {
		p.mu.Lock()
		p.err = err
		close(p.ended)
		p.mu.Unlock()
		go func() {
			defer close(p.closed)
			p.client.Close()
			p.purges.Wait()
		}()
	})
	<-p.ended
}

// OnProduceRecordPartitioned is called by the library for each record that it has
// put into its partition.
func (p *producer) OnProduceRecordPartitioned(r *kgo.Record, _ int32) {
	if f := p.flight.Load(); f != nil {
		f.place(r)
	}
}

// over reports whether the producer has ended.
func (p *producer) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// maxUnknown is how many topics that do not exist the library may keep asking
// for.
const maxUnknown = 100

func (p *producer) found(topic string) {
	p.known[topic] = true
	delete(p.unknown, topic)
}

// lost notes that a topic accepted nothing. Producers choose names of topics, so their number must
// not fill the library's memory or its requests to the brokers.
func (p *producer) lost(topic string) {
	delete(p.known, topic)
	p.unknown[topic] = struct{}{}
	if len(p.unknown) >= maxUnknown {
		topics := slices.Collect(maps.Keys(p.unknown))
		clear(p.unknown)
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.over() {
			p.purges.Go(func() { p.client.PurgeTopicsFromProducing(topics...) })
		}
	}
}

// logger is the library's log, at slog's debug level: it warns of every minor problem.
type logger struct{ log *slog.Logger }

func (l logger) Level() kgo.LogLevel {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelWarn
	}
	return kgo.LogLevelNone
}

func (l logger) Log(_ kgo.LogLevel, msg string, args ...any) {
	l.log.Debug("kafka client: "+msg, args...)
}

// Reasons to end a producer that do not come from the brokers.
var (
	errAbandoned = errors.New("the send timed out")
	errChanged   = errors.New("partitions of the topic changed while records were put into them")
)

// errTime is the cause of a Send's context that ended after delivery_timeout.
var errTime = errors.New("delivery_timeout is over")
