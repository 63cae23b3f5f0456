package kafka

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A line that is not found in place is not let go, not even in part.
func TestLineOutOfPlace(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "known", "other"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	record := func(topic string, size int) *kgo.Record {
		return &kgo.Record{Topic: topic, Key: []byte("k"), Value: make([]byte, size)}
	}
	for _, c := range []struct {
		name string
		line []*kgo.Record
		sent bool
	}{
		{"in order", []*kgo.Record{record("known", 1), record("known", 1)}, true},
		{"the library does not know the topic", []*kgo.Record{record("known", 1), record("other", 1), record("known", 1)}, false},
		{"a record has failed", []*kgo.Record{record("known", 1), record("known", 2000), record("known", 1)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{URL: "kafka://" + cluster.ListenAddrs()[0], MaxMessageBytes: 1024}
			cfg.SetDefaults()
			dial, err := cfg.dialer()
			if err != nil {
				t.Fatal(err)
			}
			p, err := newProducer(&cfg, dial, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer p.end(context.Canceled)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if p.fly(ctx, &flight{scouts: []*kgo.Record{record("known", 1)}}); p.over() {
				t.Fatal(p.err)
			}
			before := stored(cluster)
			p.fly(ctx, &flight{line: c.line})
			sent := stored(cluster) - before
			if c.sent && (sent != int64(len(c.line)) || p.over()) || !c.sent && (sent != 0 || !errors.Is(p.err, errChanged)) {
				t.Errorf("%d records of %d are there, the producer ended with %v", sent, len(c.line), p.err)
			}
		})
	}
}

// stored is how many records the topics hold.
func stored(cluster *kfake.Cluster) (n int64) {
	for _, topic := range []string{"known", "other"} {
		for _, p := range cluster.PartitionInfos(topic) {
			n += p.HighWatermark
		}
	}
	return n
}

// More partitions from one record to the next move keys; from one flight to the
// next that is nothing new.
func TestRepartitioned(t *testing.T) {
	p := new(producer)
	topic := partitioner{p}.ForTopic("t")
	keyed, loose := &kgo.Record{Key: []byte("k")}, &kgo.Record{}
	fly := func(partitions ...int) bool {
		p.flights.Add(1)
		p.repartitioned.Store(false)
		for _, n := range partitions {
			topic.Partition(loose, n+1) // those without a key may go anywhere
			topic.Partition(keyed, n)
		}
		return p.repartitioned.Load()
	}
	if fly(3, 3) || fly(4, 4) || !fly(4, 4, 5) {
		t.Error("a change within a flight, and only that, is noticed")
	}
}
