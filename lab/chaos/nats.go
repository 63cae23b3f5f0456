package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock/penstock/internal/natsserver"
	"github.com/penstock/penstock/internal/test/testserver"
)

// natsCommand is the argument that makes this program a NATS server.
const natsCommand = "nats-server"

// serveNATS runs a server in this process, which exists to be killed. It returns
// if the server does not start.
func serveNATS(dir, listen string) error {
	if _, err := natsserver.Start(natsserver.Options{Dir: dir, Listen: listen, SyncAlways: true}, nil); err != nil {
		return err
	}
	select {}
}

// natsServer is that process and the streams in it.
type natsServer struct {
	*testserver.Program
	url string
}

// duplicateWindow is the least there is: the checker must see duplicates, not have them dropped.
// One subscription's stream drops them nevertheless, as people have it, so that an id that is given
// to a second message costs that message its delivery.
func duplicateWindow(route string) time.Duration {
	if route == deduplicated {
		return time.Hour
	}
	return 100 * time.Millisecond
}

func startNATS() (*natsServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	port, err := testserver.FreePort()
	if err != nil {
		return nil, err
	}
	listen := fmt.Sprintf("127.0.0.1:%d", port)
	s := &natsServer{url: "nats://" + listen}
	program, err := testserver.NewProgram("nats", func() *exec.Cmd { return exec.Command(self, natsCommand, "streams", listen) }, s.ping)
	if err != nil {
		return nil, err
	}
	s.Program = program
	return s, s.Start()
}

func (s *natsServer) ping(context.Context) error {
	conn, err := nats.Connect(s.url, nats.Timeout(time.Second))
	if err != nil {
		return err
	}
	conn.Close()
	return nil
}

func (s *natsServer) with(ctx context.Context, fn func(ctx context.Context, js jetstream.JetStream) error) error {
	conn, err := nats.Connect(s.url, nats.Timeout(2*time.Second), nats.NoReconnect())
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return fn(ctx, js)
}

// stream is a subscription's stream, whose subjects are its name and the topic. It
// stores everything that is not poisoned, and of the rest what later and never say.
func stream(route string, later, never bool) jetstream.StreamConfig {
	subjects := []string{"order.>", "audit.>", "never.rabbit", "later.rabbit"}
	if later {
		subjects = append(subjects, "later.nats")
	}
	if never {
		subjects = append(subjects, "never.nats")
	}
	for i := range subjects {
		subjects[i] = route + ".shop." + subjects[i]
	}
	return jetstream.StreamConfig{Name: route, Subjects: subjects, Storage: jetstream.FileStorage, Duplicates: duplicateWindow(route)}
}

// route gives the later topics, and the never ones, a way into the streams, which it makes.
func (s *natsServer) route(ctx context.Context, later, never bool) error {
	return s.with(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		var errs []error
		for _, name := range routeNames("nats") {
			_, err := js.CreateOrUpdateStream(ctx, stream(name, later, never))
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// read returns the contents of a stream, in its order and with the time at which the
// server took each message: nothing was removed from it.
func (s *natsServer) read(ctx context.Context, route string) (arrivals []arrival, err error) {
	err = s.with(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		st, err := js.Stream(ctx, route)
		if err != nil {
			return err
		}
		left := st.CachedInfo().State.Msgs
		if left == 0 {
			return nil
		}
		consumer, err := st.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
		if err != nil {
			return err
		}
		messages, err := consumer.Messages()
		if err != nil {
			return err
		}
		defer messages.Stop()
		for ; left > 0; left-- {
			m, err := messages.Next(jetstream.NextContext(ctx))
			if err != nil {
				return fmt.Errorf("%d messages before the end of stream %s: %w", left, route, err)
			}
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			h := m.Headers()
			a, err := newArrival(h.Get("Nats-Msg-Id"), h.Get("Penstock-Key"), h.Get("Penstock-Topic"), h.Get("Trace"), m.Data(), meta.Timestamp)
			if err != nil {
				return err
			}
			if a.Trace == "" {
				a.Trace = h.Get("trace")
			}
			arrivals = append(arrivals, a)
		}
		return nil
	})
	return arrivals, err
}
