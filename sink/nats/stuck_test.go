package nats_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/sink/nats"
)

// A network that accepts nothing holds the client library's lock for as long as its write may
// last, here longer than the test. Contexts and Close still end.
func TestStuckWrite(t *testing.T) {
	stuck := func(t *testing.T) (s *nats.Sink, sent chan []error, cancel func()) {
		b := startBroker(t, nil)
		(&reader{url: b.addr()}).createStream(t, jetstream.StreamConfig{})
		proxy := tcpproxy.New(t, b.addr())
		s = open(t, nats.Config{URL: proxy.Addr(), AckWait: 10 * sinktest.Patience})
		mustSend(t, s, messages("orders.placed", "1"))
		proxy.Stall(tcpproxy.Both)
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		msgs := messages("orders.placed", make([]string, 2000)...)
		for i := range msgs {
			msgs[i].Payload = make([]byte, 16<<10)
		}
		sent = make(chan []error, 1)
		asked := &askedContext{Context: ctx, asked: make(chan struct{})}
		go func() { sent <- s.Send(asked, msgs) }()
		<-asked.asked
		return s, sent, cancel
	}
	ends := func(t *testing.T, sent <-chan []error) {
		t.Helper()
		select {
		case errs := <-sent:
			if errs == nil {
				t.Fatal("Send confirmed what the server cannot have")
			}
			wantError(t, errs[0], unavailable)
		case <-time.After(sinktest.Patience):
			t.Fatal("Send does not end")
		}
	}
	t.Run("cancel", func(t *testing.T) {
		t.Parallel()
		_, sent, cancel := stuck(t)
		time.AfterFunc(200*time.Millisecond, cancel) // by then the buffers are full
		ends(t, sent)
	})
	t.Run("Close", func(t *testing.T) {
		t.Parallel()
		s, sent, _ := stuck(t)
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if err := s.Close(ctx); err == nil {
			t.Error("Close reports success while a Send is under way")
		}
		ends(t, sent)
	})
}

// askedContext notices when Send first looks at it: Send is under way then.
type askedContext struct {
	context.Context
	once  sync.Once
	asked chan struct{}
}

func (c *askedContext) Err() error {
	c.once.Do(func() { close(c.asked) })
	return c.Context.Err()
}
