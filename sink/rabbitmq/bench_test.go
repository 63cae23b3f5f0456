package rabbitmq_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/sink/rabbitmq"
)

// The two benchmarks publish the same messages of 200 bytes, persistent and confirmed, into a
// durable queue. Several goroutines publish them in batches of 512. One benchmark uses the sink,
// and the other the library directly, with one channel per goroutine. Compare them within one run
// only:
//
//	go test -run '^$' -bench . -benchtime 3s -count 5 ./sink/rabbitmq
const (
	benchBatch   = 512
	benchPayload = 200
)

func BenchmarkSend(b *testing.B) {
	for _, channels := range []int{1, 2, 4} {
		for _, senders := range []int{1, 4, 8} {
			b.Run(fmt.Sprintf("channels=%d/senders=%d", channels, senders), func(b *testing.B) {
				url := testserver.RabbitMQURL(b)
				room := newRoom(b, url)
				s := open(b, rabbitmq.Config{URL: url, Exchange: room.exchange, Channels: channels})
				publish(b, senders, func() func([]penstock.Message) {
					return func(msgs []penstock.Message) {
						if errs := s.Send(b.Context(), msgs); errs != nil {
							b.Errorf("%v", errs[0])
						}
					}
				})
			})
		}
	}
}

func BenchmarkByHand(b *testing.B) {
	for _, senders := range []int{1, 4, 8} {
		b.Run(fmt.Sprintf("senders=%d", senders), func(b *testing.B) {
			room := newRoom(b, testserver.RabbitMQURL(b))
			publish(b, senders, func() func([]penstock.Message) {
				ch, err := room.conn.Channel()
				check(b, err)
				check(b, ch.Confirm(false))
				return func(msgs []penstock.Message) {
					confirms := make([]*amqp.DeferredConfirmation, len(msgs))
					for i := range msgs {
						c, err := ch.PublishWithDeferredConfirm(room.exchange, msgs[i].Topic, true, false, amqp.Publishing{
							MessageId: msgs[i].ID, DeliveryMode: amqp.Persistent, Timestamp: msgs[i].CreatedAt, Body: msgs[i].Payload,
							Headers: amqp.Table{"penstock-key": msgs[i].Key},
						})
						if err != nil {
							b.Error(err)
							return
						}
						confirms[i] = c
					}
					for _, c := range confirms {
						if !c.Wait() {
							b.Error("not confirmed")
						}
					}
				}
			})
		})
	}
}

// publish sends b.N messages. Each goroutine has a separate function.
func publish(b *testing.B, senders int, sender func() func([]penstock.Message)) {
	msgs := make([]penstock.Message, benchBatch)
	for i := range msgs {
		msgs[i] = penstock.Message{
			ID: fmt.Sprintf("0123456789ab-%06d", i), Key: fmt.Sprintf("N%05d", i), Topic: "orders.placed",
			Payload: make([]byte, benchPayload), CreatedAt: time.Now(), Attempt: 1,
		}
	}
	var sends []func([]penstock.Message)
	for range senders {
		sends = append(sends, sender())
		sends[len(sends)-1](msgs[:1]) // connected
	}
	b.ReportAllocs()
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var running sync.WaitGroup
	for _, send := range sends {
		running.Go(func() {
			for {
				n := left.Add(-benchBatch) + benchBatch
				if n <= 0 {
					return
				}
				send(msgs[:min(n, benchBatch)])
			}
		})
	}
	running.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}
