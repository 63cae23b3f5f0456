package nats_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/natsserver"
	"github.com/penstock/penstock/sink/nats"
)

// benchBatch is how many messages one Send, or one round of the raw publisher, has. benchSenders
// is how many of them run at once, as in the relay.
const (
	benchBatch   = 500
	benchSenders = 4
)

func benchMessages(n int, seq *atomic.Int64) []penstock.Message {
	payload := bytes.Repeat([]byte("x"), 200)
	now := time.Now()
	msgs := make([]penstock.Message, n)
	for i := range msgs {
		s := seq.Add(1)
		msgs[i] = penstock.Message{
			ID: fmt.Sprintf("0c9e6a52-%d", s), Seq: s, Key: fmt.Sprintf("key-%d", s%1000), Topic: "orders.placed",
			Payload: payload, CreatedAt: now, Attempt: 1,
		}
	}
	return msgs
}

// BenchmarkSend compares the sink with the client library's own asynchronous
// publisher, both confirmed, both with the same headers, into a stream on file
// storage of the embedded server. One op is one message. The two take turns
// within the run, so that a busy machine slows both.
func BenchmarkSend(b *testing.B) {
	for _, listen := range []string{"", "127.0.0.1:0"} {
		name := map[bool]string{true: "in-process", false: "loopback"}[listen == ""]
		b.Run(name, func(b *testing.B) { benchmarkSend(b, listen) })
	}
}

func benchmarkSend(b *testing.B, listen string) {
	local, err := natsserver.Open(nats.Config{Embedded: &nats.EmbeddedConfig{Dir: b.TempDir(), Listen: listen}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer local.Close(context.Background())
	sink, raw := local.Sink, rawPublisher(b, "", natsgo.InProcessServer(local.InProcess()))
	if listen != "" {
		remote, err := nats.Open(nats.Config{URL: local.ClientURL(), Subject: "penstock.{topic}"}, nil)
		if err != nil {
			b.Fatal(err)
		}
		defer remote.Close(context.Background())
		sink, raw = remote, rawPublisher(b, local.ClientURL())
	}

	var seq atomic.Int64
	var spent [2]time.Duration
	sent := 0
	b.ReportAllocs()
	for round := 0; sent < b.N; round++ {
		n := min(b.N-sent, benchSenders*benchBatch*10)
		for i, publish := range []func([]penstock.Message) error{
			func(msgs []penstock.Message) error {
				for _, err := range sink.Send(context.Background(), msgs) {
					if err != nil {
						return err
					}
				}
				return nil
			},
			raw,
		} {
			work := make(chan []penstock.Message, n/benchBatch+1)
			for left := n; left > 0; left -= benchBatch {
				work <- benchMessages(min(left, benchBatch), &seq)
			}
			close(work)
			var senders sync.WaitGroup
			start := time.Now()
			for range benchSenders {
				senders.Go(func() {
					for msgs := range work {
						if err := publish(msgs); err != nil {
							b.Error(err)
						}
					}
				})
			}
			senders.Wait()
			spent[i] += time.Since(start)
		}
		sent += n
	}
	b.ReportMetric(float64(sent)/spent[0].Seconds(), "sink-msg/s")
	b.ReportMetric(float64(sent)/spent[1].Seconds(), "raw-msg/s")
	b.ReportMetric(spent[1].Seconds()/spent[0].Seconds(), "ratio")
}

// rawPublisher is a program without the sink.
func rawPublisher(b *testing.B, url string, opts ...natsgo.Option) func([]penstock.Message) error {
	conn, err := natsgo.Connect(url, opts...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		b.Fatal(err)
	}
	return func(msgs []penstock.Message) error {
		acks := make([]jetstream.PubAckFuture, len(msgs))
		for i := range msgs {
			m := &msgs[i]
			msg := &natsgo.Msg{Subject: "penstock." + m.Topic, Data: m.Payload, Header: natsgo.Header{
				nats.HeaderID: {m.ID}, nats.HeaderKey: {m.Key}, nats.HeaderTopic: {m.Topic},
				nats.HeaderCreatedAt: {m.CreatedAt.UTC().Format(time.RFC3339Nano)},
			}}
			if acks[i], err = js.PublishMsgAsync(msg); err != nil {
				return err
			}
		}
		for _, ack := range acks {
			select {
			case <-ack.Ok():
			case err := <-ack.Err():
				return err
			}
		}
		return nil
	}
}
