package kafka_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/sink/kafka"
)

// TestOrderWhateverFails: brokers refuse batches for random reasons, lose connections and move
// partitions. There are many batches per Send, several topics per key, and missing topics. For one
// key and one call, the log holds only the first messages, in order, with all confirmed ones.
func TestOrderWhateverFails(t *testing.T) {
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	for part := range testseed.Steps(2) {
		t.Run(fmt.Sprint(part), func(t *testing.T) { orderWhateverFails(t, part) })
	}
}

func orderWhateverFails(t *testing.T, part int) {
	const senders, sends, keys = 3, 8, 4
	random := testseed.New("kafka order", part)
	topics := []string{"a", "b"}
	c := startCluster(t, 3, kfake.SeedTopics(3, topics...), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "6000"}))
	s := c.open(t, func(cfg *kafka.Config) {
		cfg.MaxMessageBytes = 8 << 10 // more than the brokers accept
		cfg.DeliveryTimeout = time.Second
		cfg.Producers = 2 // less than there are senders
	})
	var (
		mu      sync.Mutex
		calls   [][]penstock.Message
		answers [][]error
		running sync.WaitGroup
	)
	for sender := range senders {
		own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		running.Go(func() {
			for call := range sends {
				disturb(c, own)
				msgs := make([]penstock.Message, 1+own.IntN(200))
				for i := range msgs {
					key := fmt.Sprintf("%d-%d", sender, own.IntN(keys))
					msgs[i] = message(fmt.Sprintf("%d-%d-%d", sender, call, i), key, topics[own.IntN(len(topics))])
					msgs[i].Payload = make([]byte, own.IntN(300))
					switch own.IntN(100) {
					case 0:
						msgs[i].Payload = make([]byte, 7000) // a batch that the brokers refuse
					case 1:
						msgs[i].Payload = make([]byte, 9000)
					case 2:
						msgs[i].Topic = "missing"
					case 3:
						msgs[i].Topic = "not a topic"
					}
				}
				errs := s.Send(context.Background(), msgs)
				mu.Lock()
				calls, answers = append(calls, msgs), append(answers, errs)
				mu.Unlock()
			}
		})
	}
	running.Wait()
	c.each((*tcpproxy.Proxy).Resume)

	at := map[string]int{} // where in its partition, with those of other partitions in between
	for i, r := range newReader(t, topics, kgo.SeedBrokers(c.proxies[0].Addr())).records(t, 0) {
		id := string(r.Headers[0].Value)
		if _, twice := at[id]; !twice { // as after an answer that was lost
			at[id] = i
		}
	}
	confirmed, refused := 0, 0
	for n, msgs := range calls {
		type place struct{ at, of int }
		last := map[string]place{} // of the topic and key
		gap := map[string]string{} // the key's first message that is not there
		for i, m := range msgs {
			where, there := at[m.ID]
			switch err := answer(answers[n], i); {
			case err == nil && !there:
				t.Errorf("%s was confirmed and is not there", m.ID)
			case err == nil:
				confirmed++
			default:
				refused++
			}
			if !there {
				if gap[m.Key] == "" {
					gap[m.Key] = m.ID
				}
				continue
			}
			if gap[m.Key] != "" {
				t.Errorf("key %s: %s (%v) is there, %s before it is not", m.Key, m.ID, answer(answers[n], i), gap[m.Key])
			}
			line := m.Topic + " " + m.Key
			if p, ok := last[line]; ok && p.at > where {
				t.Errorf("key %s: message %d of the call is before message %d", m.Key, i, p.of)
			}
			last[line] = place{where, i}
		}
	}
	t.Logf("%d confirmed, %d not", confirmed, refused)
	if confirmed == 0 || refused == 0 {
		t.Error("nothing was tried")
	}
}

func answer(errs []error, i int) error {
	if errs == nil {
		return nil
	}
	return errs[i]
}

// disturb makes a few things go wrong at one of the next produce requests.
func disturb(c *cluster, random *rand.Rand) {
	for range random.IntN(3) {
		refusals := []*kerr.Error{
			kerr.UnknownServerError, kerr.InvalidRecord, kerr.CorruptMessage, kerr.PolicyViolation, kerr.TopicAuthorizationFailed,
			kerr.UnknownTopicOrPartition, kerr.NotLeaderForPartition, kerr.NotEnoughReplicas, kerr.RequestTimedOut,
			kerr.NotEnoughReplicasAfterAppend, kerr.OutOfOrderSequenceNumber, kerr.ClusterAuthorizationFailed,
		}
		c.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{random.Int32N(3)},
			Err: refusals[random.IntN(len(refusals))], Count: 1 + random.IntN(2),
		})
	}
	switch random.IntN(6) {
	case 0:
		c.proxies[random.IntN(len(c.proxies))].Cut()
	case 1:
		c.ShufflePartitionLeaders()
	}
}

// A broker refuses the first records while the library has not got all others of their key yet:
// these must not arrive.
func TestRefusedBeforeTheLastIsThere(t *testing.T) {
	c := startCluster(t, 1, kfake.SeedTopics(1, orders), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "5000"}))
	s := c.open(t, func(cfg *kafka.Config) { cfg.MaxMessageBytes = 1 << 20 })
	wantAnswer(t, send(t, s, message("first", "k", orders))[0], "confirmed", "") // the way is open
	msgs := make([]penstock.Message, 50_000)
	for i := range msgs {
		msgs[i] = message(fmt.Sprint(i), "k", orders)
	}
	msgs[0].Payload = make([]byte, 6000)
	errs := send(t, s, msgs...)
	wantAnswer(t, errs[0], "permanent", "max.message.bytes")
	for _, err := range errs[1:] {
		if class(err) != "unclassified" {
			t.Fatalf("%s: %v; want it held back", class(err), err)
		}
	}
	if got := newReader(t, []string{orders}, kgo.SeedBrokers(c.proxies[0].Addr())).records(t, 1); len(got) != 1 {
		t.Errorf("%d records are there that must not", len(got)-1)
	}
}
