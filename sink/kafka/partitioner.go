package kafka

import (
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kgo"
)

// partitioner sends the records of a key to the partition that Kafka's own clients choose
// (murmur2), and those without a key to a random one. The random one changes with each flight and
// once a batch is full. So a flight makes as few batches as it can, which saves the broker work.
type partitioner struct{ producer *producer }

// perRecord is about how many bytes a record takes in addition to its payload.
const perRecord = 128

func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return &topicPartitioner{producer: p.producer, current: -1, keyed: kgo.StickyKeyPartitioner(nil).ForTopic(topic)}
}

type topicPartitioner struct {
	producer *producer
	keyed    kgo.TopicPartitioner

	flight     uint64 // the number of the flight in which
	partitions int    // there was this number of partitions

	looseFlight   uint64 // the number of the flight in which
	current, left int    // this is the partition of those without a key, for this many bytes more
}

// RequiresConsistency is true for a record with a key: its partition stays the same
// even if it cannot be written to.
func (t *topicPartitioner) RequiresConsistency(r *kgo.Record) bool { return r.Key != nil }

// Partition is called under a lock of the library's.
func (t *topicPartitioner) Partition(r *kgo.Record, n int) int {
	if r.Key != nil {
		if flight := t.producer.flights.Load(); t.flight != flight {
			t.flight, t.partitions = flight, n
		} else if t.partitions != n { // and any key may have moved
			t.producer.repartitioned.Store(true)
		}
		return t.keyed.Partition(r, n)
	}
	size := perRecord + len(r.Value)
	if flight := t.producer.flights.Load(); t.looseFlight != flight || t.left < size || t.current >= n {
		t.looseFlight, t.current, t.left = flight, another(t.current, n), t.producer.cfg.MaxMessageBytes
	}
	t.left -= size
	return t.current
}

// another is a random one of n partitions, but not the current one if there are others.
func another(present, n int) int {
	if n == 1 || present < 0 || present >= n {
		return rand.IntN(n)
	}
	return (present + 1 + rand.IntN(n-1)) % n
}
