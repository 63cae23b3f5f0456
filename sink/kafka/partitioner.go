package kafka

import (
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kgo"
)

// partitioner sends the records of a key where Kafka's own clients send them
// (murmur2), and those without one to a partition of chance, so many bytes at a
// time that batches are worth their overhead.
type partitioner struct{ producer *producer }

// chunk is how much goes to one partition before it is another's turn.
const chunk = 64 << 10

func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return &topicPartitioner{producer: p.producer, keyed: kgo.StickyKeyPartitioner(nil).ForTopic(topic)}
}

type topicPartitioner struct {
	producer *producer
	keyed    kgo.TopicPartitioner

	flight     uint64 // the number of the flight in which
	partitions int    // there were so many partitions

	current, left int // partition of those without a key, and bytes until the next
}

// RequiresConsistency: a key has one partition, whether it can be written to or
// not.
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
	if t.left <= 0 || t.current >= n {
		t.current, t.left = rand.IntN(n), chunk
	}
	t.left -= len(r.Value)
	return t.current
}
