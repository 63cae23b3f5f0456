package rabbitmq_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/testserver"
)

// Everything is returned, far more than one channel may have waiting, while other Sends share the
// channel. No returned message counts as delivered, and no other message as lost.
func TestFloodOfReturns(t *testing.T) {
	room := newRoom(t, testserver.RabbitMQURL(t))
	cfg := room.config(t, host(t, room.url))
	cfg.MaxPending = 100
	s := open(t, cfg)
	var running sync.WaitGroup
	for sender := range 4 {
		running.Go(func() {
			msgs := orders(1000)
			for i := range msgs {
				msgs[i].ID = fmt.Sprintf("%d-%d", sender, i)
				if i%3 != 0 {
					msgs[i].Topic = "invoices.sent"
				}
			}
			errs := s.Send(patient(t), msgs)
			if errs == nil {
				t.Error("no error at all")
				return
			}
			for i, err := range errs {
				if (i%3 == 0) != (err == nil) {
					t.Errorf("message %d to %s: %v", i, msgs[i].Topic, err)
				}
			}
		})
	}
	running.Wait()
	if got := room.drain(t, 4*334); len(got) != 4*334 {
		t.Errorf("%d messages arrived, want %d", len(got), 4*334)
	}
}

// A message id shows which message was returned, and ids may repeat. In that case all messages with
// it count as returned: sent again they arrive twice, which is allowed.
func TestReturnOfARepeatedID(t *testing.T) {
	room := newRoom(t, testserver.RabbitMQURL(t))
	s := open(t, room.config(t, host(t, room.url)))
	msgs := orders(4)
	msgs[1].ID, msgs[2].ID = "twice", "twice"
	msgs[2].Topic = "invoices.sent"
	errs := s.Send(patient(t), msgs)
	if errs == nil || errs[0] != nil || errs[3] != nil || errs[2] == nil {
		t.Errorf("want the third, and perhaps the second, to fail: %v", errs)
	}
}

func TestUnroutableTellsWhatToDo(t *testing.T) {
	room := newRoom(t, testserver.RabbitMQURL(t))
	cfg := room.config(t, host(t, room.url))
	msgs := orders(1)
	msgs[0].Topic = "invoices.sent"
	errs := open(t, cfg).Send(patient(t), msgs)
	want := fmt.Sprintf("no queue is bound to exchange %q with routing key %q", room.exchange, "invoices.sent")
	if errs == nil || !strings.Contains(errs[0].Error(), want) || !strings.Contains(errs[0].Error(), "bind a queue") {
		t.Errorf("%v", errs)
	}
	cfg.Exchange = ""
	msgs[0].Topic = room.queue + "-not"
	errs = open(t, cfg).Send(patient(t), msgs)
	if errs == nil || !strings.Contains(errs[0].Error(), fmt.Sprintf("there is no queue named %q", msgs[0].Topic)) {
		t.Errorf("%v", errs)
	}
	msgs[0].Topic = room.queue
	if errs := open(t, cfg).Send(patient(t), msgs); errs != nil {
		t.Errorf("the default exchange: %v", errs)
	}
}

// A full queue that rejects answers with a nack, which says nothing about the message. It is a classic queue, whatever the server's default: a quorum queue accepts some more
// before it rejects.
func TestNack(t *testing.T) {
	room := newRoom(t, testserver.RabbitMQURL(t))
	full := room.queue + "-full"
	_, err := room.ch.QueueDeclare(full, true, false, false, false, amqp.Table{"x-queue-type": "classic", "x-max-length": 2, "x-overflow": "reject-publish"})
	check(t, err)
	t.Cleanup(func() {
		_, err := room.ch.QueueDelete(full, false, false, false)
		check(t, err)
	})
	check(t, room.ch.QueueBind(full, "full", room.exchange, false, nil))
	s := open(t, room.config(t, host(t, room.url)))
	fill := orders(2)
	for i := range fill {
		fill[i].Topic = "full"
	}
	if errs := s.Send(patient(t), fill); errs != nil {
		t.Fatal(errs)
	}
	msgs := orders(3)
	msgs[1].Topic = "full"
	errs := s.Send(patient(t), msgs)
	if errs == nil || errs[0] != nil || errs[1] == nil || errs[2] != nil {
		t.Fatalf("want the second to fail alone: %v", errs)
	}
	if d, asked := penstock.RetryDelay(errs[1]); !penstock.IsUnavailable(errs[1]) || !asked || d <= 0 || !strings.Contains(errs[1].Error(), "nack") {
		t.Errorf("want an error about a nack that spends no attempt: %v", errs[1])
	}
}
