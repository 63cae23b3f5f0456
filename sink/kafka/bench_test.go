package kafka_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/sink/kafka"
)

// How the relay calls a sink: this many goroutines with batches of this size.
const (
	benchSenders = 8
	benchBatch   = 512
	benchTopic   = "orders.placed"
)

// BenchmarkSend compares the sink with the library itself. The library produces the same records
// from memory and waits only for room in its buffer, once without a linger and once with its own
// of 10 ms. The three take turns within the run, so a busy machine slows all of them. One op is
// one message; ratio is against the better of the two.
//
//	go test -run '^$' -bench Send -benchtime 1000000x -count 5 ./sink/kafka
//
// measures against kfake in this process; with PENSTOCK_TEST_KAFKA_JARS, the folder that
// script/kafka-jars.sh prints, against Apache Kafka.
func BenchmarkSend(b *testing.B) {
	for _, keys := range []int{0, 1000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) { benchmarkSend(b, keys) })
	}
}

func benchmarkSend(b *testing.B, keys int) {
	addr := benchBroker(b)
	sink := open(b, kafka.Config{URL: "kafka://" + addr})
	contenders := []func([]penstock.Message) error{
		func(msgs []penstock.Message) error {
			for _, err := range sink.Send(b.Context(), msgs) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		nil, nil,
	}
	waits := []func() error{func() error { return nil }, nil, nil}
	contenders[1], waits[1] = byHand(b, addr, kgo.ProducerLinger(0))
	contenders[2], waits[2] = byHand(b, addr)

	var seq atomic.Int64
	var spent [3]time.Duration
	round := func(n int) {
		for i, send := range contenders {
			work := make(chan []penstock.Message, n/benchBatch+1)
			for left := n; left > 0; left -= benchBatch {
				work <- benchMessages(min(left, benchBatch), keys, &seq)
			}
			close(work)
			var senders sync.WaitGroup
			start := time.Now()
			for range benchSenders {
				senders.Go(func() {
					for msgs := range work {
						if err := send(msgs); err != nil {
							b.Error(err)
						}
					}
				})
			}
			senders.Wait()
			if err := waits[i](); err != nil {
				b.Error(err)
			}
			spent[i] += time.Since(start)
		}
	}
	round(benchSenders * benchBatch) // connected, and the topic known
	spent = [3]time.Duration{}
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; left -= 100 * benchBatch {
		round(min(left, 100*benchBatch))
	}
	rate := func(d time.Duration) float64 { return float64(b.N) / d.Seconds() }
	b.ReportMetric(rate(spent[0]), "sink-msg/s")
	b.ReportMetric(rate(spent[1]), "nolinger-msg/s")
	b.ReportMetric(rate(spent[2]), "linger-msg/s")
	b.ReportMetric(min(spent[1], spent[2]).Seconds()/spent[0].Seconds(), "ratio")
}

// byHand produces records like the sink's; wait returns when all are answered.
func byHand(b *testing.B, addr string, opts ...kgo.Opt) (produce func([]penstock.Message) error, wait func() error) {
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addr), kgo.ProducerBatchCompression(kgo.NoCompression()))...)
	check(b, err)
	b.Cleanup(client.Close)
	var failed atomic.Pointer[error]
	promise := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.Store(&err)
		}
	}
	produce = func(msgs []penstock.Message) error {
		for i := range msgs {
			m := &msgs[i]
			r := &kgo.Record{Topic: m.Topic, Value: m.Payload, Headers: []kgo.RecordHeader{
				{Key: "penstock-id", Value: []byte(m.ID)},
				{Key: "penstock-created-at", Value: []byte(m.CreatedAt.UTC().Format(time.RFC3339Nano))},
			}}
			if m.Key != "" {
				r.Key = []byte(m.Key)
			}
			client.Produce(b.Context(), r, promise)
		}
		return nil
	}
	wait = func() error {
		if err := client.Flush(b.Context()); err != nil {
			return err
		}
		if err := failed.Load(); err != nil {
			return *err
		}
		return nil
	}
	return produce, wait
}

func benchMessages(n, keys int, seq *atomic.Int64) []penstock.Message {
	now := time.Now()
	payload := []byte(strings.Repeat("x", 200))
	msgs := make([]penstock.Message, n)
	for i := range msgs {
		s := seq.Add(1)
		msgs[i] = penstock.Message{ID: fmt.Sprintf("0c9e6a52-%d", s), Topic: benchTopic, Payload: payload, CreatedAt: now, Attempt: 1}
		if keys > 0 {
			msgs[i].Key = fmt.Sprintf("key-%d", s%int64(keys))
		}
	}
	return msgs
}

// benchBroker is the address of a broker with the topic, of six partitions.
func benchBroker(b *testing.B) string {
	const partitions = 6
	if !testserver.HasKafka() {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, benchTopic))
		check(b, err)
		b.Cleanup(c.Close)
		return c.ListenAddrs()[0]
	}
	k := testserver.StartKafka(b, testserver.KafkaOptions{})
	addr := strings.TrimPrefix(k.URL, "kafka://")
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	check(b, err)
	defer client.Close()
	_, err = kadm.NewClient(client).CreateTopic(b.Context(), partitions, 1, nil, benchTopic)
	check(b, err)
	return addr
}
