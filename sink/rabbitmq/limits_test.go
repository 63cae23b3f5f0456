package rabbitmq_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/sink/rabbitmq"
)

// refuses covers all that a broker refuses by closing the channel or by not reading.
func (b *broker) refuses(t *testing.T) {
	// Of channels that are opened from now on. RabbitMQ 3 reads the one, 4 the other.
	b.ctl(t, "eval", "application:set_env(rabbit, max_message_size, 1000), persistent_term:put(max_message_size, 1000).")
	asRelay := func(t *testing.T, room *room) *rabbitmq.Sink {
		t.Helper()
		cfg := room.config(t, host(t, b.URL))
		u, err := url.Parse(cfg.URL)
		check(t, err)
		u.User = nil
		cfg.URL, cfg.User, cfg.Password = u.String(), "relay", b.password
		return open(t, cfg)
	}

	// RabbitMQ closes the channel over a message that is too large, and does not show which. Many
	// messages of several Sends share the channel.
	t.Run("messages too large", func(t *testing.T) {
		room := newRoom(t, b.URL)
		s := open(t, room.config(t, host(t, b.URL)))
		var running sync.WaitGroup
		for sender := range 3 {
			running.Go(func() {
				msgs := orders(100)
				large := map[int]bool{}
				for i := range msgs {
					msgs[i].ID = fmt.Sprintf("%d-%d", sender, i)
					if sender > 0 && (i == 17*sender || i == 99) {
						msgs[i].Payload = make([]byte, 2000)
						large[i] = true
					}
				}
				errs := s.Send(patient(t), msgs)
				if errs == nil {
					errs = make([]error, len(msgs))
				}
				for i, err := range errs {
					switch {
					case large[i] && (!penstock.IsPermanent(err) || !strings.Contains(err.Error(), "max_message_size")):
						t.Errorf("sender %d: the large message %d: %v; want a Permanent error with the next step", sender, i, err)
					case !large[i] && err != nil:
						t.Errorf("sender %d: message %d, which is not large: %v", sender, i, err)
					}
				}
			})
		}
		running.Wait()
		arrived := map[string]bool{}
		for _, r := range room.drain(t, 296) {
			arrived[r.ID] = true
		}
		if len(arrived) != 296 {
			t.Errorf("%d messages arrived, want 296", len(arrived))
		}
	})

	t.Run("no permission for one routing key", func(t *testing.T) {
		room := newRoom(t, b.URL)
		b.ctl(t, "set_topic_permissions", "relay", room.exchange, `^orders\.placed$`, "")
		msgs := orders(50)
		msgs[20].Topic = "orders.secret"
		errs := asRelay(t, room).Send(patient(t), msgs)
		for i, err := range errs {
			if i == 20 {
				if err == nil || penstock.IsPermanent(err) || penstock.IsUnavailable(err) || !strings.Contains(err.Error(), "permission") {
					t.Errorf("message 20: %v; want an unclassified error about the permission", err)
				}
			} else if err != nil {
				t.Errorf("message %d: %v", i, err)
			}
		}
		if errs == nil {
			t.Error("all were confirmed")
		}
	})

	t.Run("no permission for the exchange", func(t *testing.T) {
		room := newRoom(t, b.URL)
		b.ctl(t, "set_permissions", "relay", "", "nothing", "")
		s := asRelay(t, room)
		wantUnavailable(t, s.Send(patient(t), orders(50)), "write permission")
		b.ctl(t, "set_permissions", "relay", "", ".*", "")
		heals(t, s)
	})

	t.Run("no such exchange", func(t *testing.T) {
		room := newRoom(t, b.URL)
		cfg := room.config(t, host(t, b.URL))
		cfg.Exchange = room.exchange + "-later"
		s := open(t, cfg)
		wantUnavailable(t, s.Send(patient(t), orders(50)), "create the exchange")
		check(t, room.ch.ExchangeDeclare(cfg.Exchange, amqp.ExchangeFanout, false, true, false, false, nil))
		check(t, room.ch.QueueBind(room.queue, "", cfg.Exchange, false, nil))
		heals(t, s)
	})

	t.Run("no such virtual host", func(t *testing.T) {
		room := newRoom(t, b.URL)
		cfg := room.config(t, host(t, b.URL))
		cfg.URL = strings.TrimSuffix(cfg.URL, "/") + "/nowhere"
		wantUnavailable(t, open(t, cfg).Send(patient(t), orders(2)), `virtual host "nowhere"`)
	})

	// Short of memory, RabbitMQ stops reading from publishers and says so. Then nothing more is
	// published, and a Send reports why it waited.
	t.Run("blocked by an alarm", func(t *testing.T) {
		room := newRoom(t, b.URL)
		s := open(t, room.config(t, host(t, b.URL)))
		if errs := s.Send(patient(t), orders(1)); errs != nil {
			t.Fatal(errs)
		}
		b.ctl(t, "set_vm_memory_high_watermark", "absolute", "1")
		lifted := false
		lift := func() {
			if !lifted {
				b.ctl(t, "set_vm_memory_high_watermark", "0.4")
				lifted = true
			}
		}
		defer lift()
		for deadline := time.Now().Add(sinktest.Patience); ; {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			errs := s.Send(ctx, orders(10))
			cancel()
			if errs != nil && strings.Contains(errs[len(errs)-1].Error(), "blocked all publishers") {
				wantUnavailable(t, errs, "")
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("RabbitMQ's alarm does not show: %v", errs)
			}
		}
		late := orders(10)
		for i := range late {
			late[i].ID = fmt.Sprintf("late-%d", i)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		wantUnavailable(t, s.Send(ctx, late), "blocked all publishers")
		lift()
		heals(t, s)
		for _, r := range room.drain(t, 1) {
			if strings.HasPrefix(r.ID, "late-") {
				t.Fatalf("%s was published while it was known that nobody reads", r.ID)
			}
		}
	})
}

func wantUnavailable(t *testing.T, errs []error, text string) {
	t.Helper()
	if errs == nil {
		t.Fatal("everything was confirmed")
	}
	for i, err := range errs {
		if !penstock.IsUnavailable(err) || !strings.Contains(err.Error(), text) {
			t.Fatalf("message %d: %v; want an Unavailable error with %q", i, err, text)
		}
	}
}

// heals requires that the sink works again without a new Open.
func heals(t *testing.T, s *rabbitmq.Sink) {
	t.Helper()
	ctx := patient(t)
	for {
		errs := s.Send(ctx, orders(1))
		if errs == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("still failing: %v", errs[0])
		}
		time.Sleep(10 * time.Millisecond)
	}
}
