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

// A line that is not completely in place is not released, not even in part.
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
			p, err := newProducer(&cfg, dial, nil, slog.New(slog.DiscardHandler))
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

// If the number of partitions grows between two records, keys move. Between two flights that is
// normal.
func TestRepartitioned(t *testing.T) {
	p := &producer{cfg: &Config{MaxMessageBytes: 1 << 20}}
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

// Records without a key go to one partition until a batch is full, and each flight uses another
// partition.
func TestLoosePartitions(t *testing.T) {
	const partitions, records = 1000, 512
	p := &producer{cfg: &Config{MaxMessageBytes: 1 << 20}}
	topic := partitioner{p}.ForTopic("t")
	fly := func(size int) (batches int) {
		p.flights.Add(1)
		last, value := -1, make([]byte, size)
		for range records {
			if n := topic.Partition(&kgo.Record{Value: value}, partitions); n != last {
				batches, last = batches+1, n
			}
		}
		return batches
	}
	flights := map[int]bool{}
	for range 20 {
		if n := fly(200); n != 1 {
			t.Fatalf("%d records of 200 bytes make %d batches, want 1", records, n)
		}
		flights[topic.Partition(&kgo.Record{}, partitions)] = true
	}
	if len(flights) < 2 {
		t.Error("20 flights go to the same partition of 1000")
	}
	if n := fly(20_000); n < 9 || n > 10 { // by chance one partition twice in a row
		t.Errorf("10 MB make %d batches of 1 MiB at the most, want 10", n)
	}
	if n := fly(2 << 20); n < records/2 {
		t.Errorf("records larger than a batch share %d", n)
	}
}
