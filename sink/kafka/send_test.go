package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/sink/kafka"
)

const orders = "orders"

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), sinktest.Patience)
	t.Cleanup(cancel)
	return ctx
}

func send(t *testing.T, s *kafka.Sink, msgs ...penstock.Message) []error {
	t.Helper()
	errs := s.Send(patient(t), msgs)
	if errs == nil {
		errs = make([]error, len(msgs))
	}
	return errs
}

// class is the error class of err.
func class(err error) string {
	switch {
	case err == nil:
		return "confirmed"
	case penstock.IsPermanent(err):
		return "permanent"
	case penstock.IsUnavailable(err):
		return "unavailable"
	}
	return "unclassified"
}

func wantAnswer(t *testing.T, err error, want, text string) {
	t.Helper()
	if class(err) != want || err != nil && !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v; want %s, %q", class(err), err, want, text)
	}
}

// A broker refuses a batch as a whole and does not name the record.
func TestOneRecordSpoilsBatch(t *testing.T) {
	c := startCluster(t, 1, kfake.SeedTopics(2, orders), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "5000"}))
	s := c.open(t, nil)
	var msgs []penstock.Message
	for i := range 200 {
		msgs = append(msgs, message(fmt.Sprint(i), fmt.Sprint("key-", i%50), orders))
	}
	msgs[57].Payload = make([]byte, 6000)
	errs := send(t, s, msgs...)
	for i, err := range errs {
		switch {
		case i == 57:
			wantAnswer(t, err, "permanent", "max.message.bytes")
		case i > 57 && i%50 == 7:
			wantAnswer(t, err, "unclassified", "held back")
		default:
			wantAnswer(t, err, "confirmed", "")
		}
	}
	// 200 of them together are also more than 5000 bytes.
	if got := newReader(t, []string{orders}, kgo.SeedBrokers(c.proxies[0].Addr())).records(t, 197); len(got) != 197 {
		t.Errorf("%d records are there, want 197", len(got))
	}
}

// Errors of brokers, and their error classes.
func TestVerdicts(t *testing.T) {
	c := startCluster(t, 1, kfake.SeedTopics(1, orders))
	for _, v := range []struct {
		says *kerr.Error
		want string
		text string
	}{
		{kerr.MessageTooLarge, "permanent", "max_message_bytes"},
		{kerr.RecordListTooLarge, "permanent", "max_message_bytes"},
		{kerr.InvalidRecord, "permanent", "compacted"},
		{kerr.InvalidTopicException, "permanent", "template"},
		{kerr.InvalidTimestamp, "unclassified", "clocks"},
		{kerr.TopicAuthorizationFailed, "unclassified", "Write and Describe"},
		{kerr.UnknownTopicOrPartition, "unclassified", "create it"},
		{kerr.PolicyViolation, "unclassified", "POLICY_VIOLATION"},
		{kerr.UnknownServerError, "unclassified", "UNKNOWN_SERVER_ERROR"},
		{kerr.CorruptMessage, "unclassified", "CORRUPT_MESSAGE"},
		{kerr.ClusterAuthorizationFailed, "unavailable", "IdempotentWrite"},
		{kerr.UnsupportedCompressionType, "unavailable", "UNSUPPORTED_COMPRESSION_TYPE"},
		{kerr.NotEnoughReplicas, "unavailable", "in time"},
		{kerr.NotEnoughReplicasAfterAppend, "unavailable", "in time"},
		{kerr.LeaderNotAvailable, "unavailable", "in time"},
		{kerr.KafkaStorageError, "unavailable", "in time"},
	} {
		t.Run(v.says.Message, func(t *testing.T) {
			s := c.open(t, nil)
			wantAnswer(t, send(t, s, message("1", "", orders))[0], "confirmed", "")
			fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: v.says, Count: -1})
			ctx := patient(t)
			if v.text == "in time" { // the library retries for as long as it may
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
			}
			wantAnswer(t, s.Send(ctx, []penstock.Message{message("2", "", orders)})[0], v.want, v.text)
			fault.Remove()
			wantAnswer(t, send(t, s, message("3", "", orders))[0], "confirmed", "")
		})
	}
	t.Run("INVALID_TIMESTAMP, timestamp: created", func(t *testing.T) {
		s := c.open(t, func(cfg *kafka.Config) { cfg.Timestamp = "created" })
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidTimestamp, Count: 1})
		wantAnswer(t, send(t, s, message("1", "", orders))[0], "permanent", "set timestamp to sent")
	})
	t.Run("delivery_timeout", func(t *testing.T) {
		s := c.open(t, func(cfg *kafka.Config) { cfg.DeliveryTimeout = 100 * time.Millisecond })
		fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
		defer fault.Remove()
		for { // connecting may also take that long
			if err := send(t, s, message("1", "", orders))[0]; strings.Contains(err.Error(), "within 100ms") {
				wantAnswer(t, err, "unavailable", "min.insync.replicas")
				return
			}
		}
	})
	t.Run("no producer id", func(t *testing.T) {
		s := c.open(t, nil)
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.ClusterAuthorizationFailed, Count: 1})
		wantAnswer(t, send(t, s, message("1", "", orders))[0], "unavailable", "IdempotentWrite")
		wantAnswer(t, send(t, s, message("2", "", orders))[0], "confirmed", "")
	})
}

// A missing topic affects no other topic, and works once it exists.
func TestUnknownTopic(t *testing.T) {
	c := startCluster(t, 1, kfake.SeedTopics(2, orders), kfake.AllowAutoTopicCreation())
	s := c.open(t, nil)
	msgs := []penstock.Message{message("1", "k", orders), message("2", "k", "missing"), message("3", "k", orders), message("4", "other", orders), message("5", "", "missing")}
	errs := send(t, s, msgs...)
	wantAnswer(t, errs[0], "confirmed", "")
	wantAnswer(t, errs[1], "unclassified", `no Kafka topic "missing"`)
	wantAnswer(t, errs[2], "unclassified", "held back")
	wantAnswer(t, errs[3], "confirmed", "")
	wantAnswer(t, errs[4], "unclassified", `no Kafka topic "missing"`)

	check(t, c.CreateTopic("missing", 1, nil))
	for i, err := range send(t, s, msgs[1:]...) {
		if err != nil {
			t.Errorf("message %d, the topic exists: %v", i, err)
		}
	}
	creates := c.open(t, func(cfg *kafka.Config) { cfg.CreateTopics = true })
	wantAnswer(t, send(t, creates, message("6", "", "new"))[0], "confirmed", "")
}

// Producers choose names of topics. The library does not ask forever for those that never existed.
func TestManyUnknownTopics(t *testing.T) {
	c := startCluster(t, 1, kfake.SeedTopics(1, orders))
	var asked atomic.Int64 // the most topics in one question
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		asked.Store(max(asked.Load(), int64(len(r.(*kmsg.MetadataRequest).Topics))))
		return nil, nil, false
	})
	const each, rounds = 120, 4
	s := c.open(t, nil)
	for round := range rounds {
		var msgs []penstock.Message
		for i := range each {
			msgs = append(msgs, message(fmt.Sprint(i), "", fmt.Sprintf("missing-%d-%d", round, i)))
		}
		msgs = append(msgs, message("there", "", orders))
		for i, err := range send(t, s, msgs...) {
			if there := i == each; (err == nil) != there || penstock.IsPermanent(err) {
				t.Fatalf("%s: %v", msgs[i].Topic, err)
			}
		}
	}
	if n := asked.Load(); n < each || n > 3*each {
		t.Errorf("the library asks for %d topics at once, of %d that do not exist", n, each*rounds)
	}
}

// One of three brokers is away: partitions of the other leaders continue.
func TestOneBrokerAway(t *testing.T) {
	c := startCluster(t, 3, kfake.SeedTopics(3, orders))
	for p := range int32(3) {
		check(t, c.MoveTopicPartition(orders, p, p%2+1)) // not on broker 0
	}
	s := c.open(t, func(cfg *kafka.Config) {
		cfg.URL = "kafka://" + c.proxies[0].Addr() + "," + c.proxies[1].Addr()
	})
	c.proxies[0].Refuse()
	for i := range 5 {
		wantAnswer(t, send(t, s, message(fmt.Sprint(i), fmt.Sprint(i), orders))[0], "confirmed", "")
	}
}

// When a Send's time is over its records are called back. Once the network heals, nothing arrives
// that the relay was told had failed. The record is larger than the proxy's buffer, and small
// enough to wait in the system's.
func TestGivenUpStaysAway(t *testing.T) {
	c := startCluster(t, 1, kfake.SeedTopics(1, orders))
	s := c.open(t, nil)
	wantAnswer(t, send(t, s, message("1", "", orders))[0], "confirmed", "")
	c.each(func(p *tcpproxy.Proxy) { p.Stall(tcpproxy.ToServer) })
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	late := message("2", "", orders)
	late.Payload = make([]byte, 900<<10) // more than buffers in between hold
	wantAnswer(t, s.Send(ctx, []penstock.Message{late})[0], "unavailable", "in time")
	c.each((*tcpproxy.Proxy).Resume)
	for i := range 5 { // enough time for the waiting bytes
		wantAnswer(t, send(t, s, message(fmt.Sprint("later-", i), "", orders))[0], "confirmed", "")
	}
	for _, r := range newReader(t, []string{orders}, kgo.SeedBrokers(c.proxies[0].Addr())).records(t, 6) {
		if len(r.Value) == len(late.Payload) {
			t.Error("the message that was given up is there")
		}
	}
}

// As many Sends as there are producers; the next waits, and no longer than its
// context.
func TestProducersAreBounded(t *testing.T) {
	c := startCluster(t, 1, kfake.SeedTopics(1, orders))
	s := c.open(t, func(cfg *kafka.Config) { cfg.Producers = 1 })
	wantAnswer(t, send(t, s, message("1", "", orders))[0], "confirmed", "")
	asked := c.keepUnanswered(t)
	first := make(chan []error)
	long, cancel := context.WithCancel(t.Context())
	go func() { first <- s.Send(long, []penstock.Message{message("2", "", orders)}) }()
	<-asked
	short, done := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer done()
	wantAnswer(t, s.Send(short, []penstock.Message{message("3", "", orders)})[0], "unavailable", "producers")
	cancel()
	err := (<-first)[0]
	wantAnswer(t, err, "unavailable", "")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v is not the context's error", err)
	}
}

// When Close has waited long enough, the Sends that still run end.
func TestCloseEndsSends(t *testing.T) {
	c := startCluster(t, 1, kfake.SeedTopics(1, orders))
	s := c.open(t, nil)
	wantAnswer(t, send(t, s, message("1", "", orders))[0], "confirmed", "")
	asked := c.keepUnanswered(t)
	running := make(chan []error, 1)
	go func() { running <- s.Send(t.Context(), []penstock.Message{message("2", "", orders)}) }()
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close: %v", err)
	}
	select {
	case errs := <-running:
		wantAnswer(t, errs[0], "unavailable", "closed")
	case <-time.After(sinktest.Patience):
		t.Fatal("Send goes on after Close")
	}
}
