package nats_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/sink/nats"
)

func open(t testing.TB, cfg nats.Config) *nats.Sink {
	t.Helper()
	s, err := nats.Open(patiently(cfg), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(patient(t)); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), sinktest.Patience)
	t.Cleanup(cancel)
	return ctx
}

func messages(topic string, ids ...string) []penstock.Message {
	msgs := make([]penstock.Message, len(ids))
	for i, id := range ids {
		msgs[i] = penstock.Message{ID: id, Key: "key-" + id, Topic: topic, Payload: []byte("payload"), CreatedAt: time.Now(), Attempt: 1}
	}
	return msgs
}

func mustSend(t testing.TB, s driver.Sink, msgs []penstock.Message) {
	t.Helper()
	for i, err := range s.Send(patient(t), msgs) {
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
}

// sendOne sends a message and returns its error.
func sendOne(t testing.TB, s driver.Sink, m penstock.Message) error {
	t.Helper()
	errs := s.Send(patient(t), []penstock.Message{m})
	if errs == nil {
		return nil
	}
	return errs[0]
}

type errorClass string

const (
	unclassified errorClass = "unclassified"
	permanent    errorClass = "Permanent"
	unavailable  errorClass = "Unavailable"
)

func wantError(t testing.TB, err error, want errorClass, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("the message is confirmed")
	}
	got := unclassified
	switch {
	case penstock.IsPermanent(err):
		got = permanent
	case penstock.IsUnavailable(err):
		got = unavailable
	}
	if got != want {
		t.Errorf("%q is %s, want %s", err, got, want)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not contain %q", err, text)
		}
	}
}

// Refusals of a server or stream, and the error for the relay.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		stream *jetstream.StreamConfig // nil: none
		broker func(*server.Options)
		before func(*testing.T, *natsgo.Conn) // on a separate connection
		send   penstock.Message
		want   errorClass
		texts  []string
	}{
		"the stream is full": {
			stream: &jetstream.StreamConfig{MaxMsgs: 1, Discard: jetstream.DiscardNew},
			want:   unavailable, texts: []string{"stream S", "maximum messages exceeded", "max_msgs"},
		},
		"the stream is full of bytes": {
			stream: &jetstream.StreamConfig{MaxBytes: 300, Discard: jetstream.DiscardNew},
			want:   unavailable, texts: []string{"maximum bytes exceeded", "max_bytes"},
		},
		"larger than the stream allows": {
			stream: &jetstream.StreamConfig{MaxMsgSize: 400},
			send:   penstock.Message{Payload: make([]byte, 500)},
			want:   permanent, texts: []string{"message size exceeds maximum", "max_msg_size"},
		},
		"larger than the server allows": {
			stream: &jetstream.StreamConfig{},
			send:   penstock.Message{Payload: make([]byte, testMaxPayload)},
			want:   permanent, texts: []string{fmt.Sprint("max_payload of ", testMaxPayload)},
		},
		"headers over the limit": {
			stream: &jetstream.StreamConfig{},
			send:   penstock.Message{Headers: map[string]string{"long": strings.Repeat("x", 65_530)}},
			want:   permanent, texts: []string{"header size exceeds maximum"},
		},
		"the stream is sealed": {
			stream: &jetstream.StreamConfig{Sealed: true},
			want:   unclassified, texts: []string{"sealed"},
		},
		"no stream": {
			want: unclassified, texts: []string{`no JetStream stream stores the subject "s.topic"`, "create_stream"},
		},
		"a subscriber, but no stream": {
			before: func(t *testing.T, c *natsgo.Conn) {
				must(c.Subscribe("s.>", func(*natsgo.Msg) {}))
			},
			want: unclassified, texts: []string{`no JetStream stream stores the subject "s.topic"`},
		},
		"a service answers": {
			before: func(t *testing.T, c *natsgo.Conn) {
				must(c.Subscribe("s.>", func(m *natsgo.Msg) { _ = m.Respond([]byte(`{"ok":true}`)) }))
			},
			want: unclassified, texts: []string{"not a JetStream stream"},
		},
		"a stream that does not acknowledge": {
			stream: &jetstream.StreamConfig{NoAck: true},
			want:   unavailable, texts: []string{"stream S does not answer", "no acknowledgement within", "no_ack"},
		},
		"no JetStream": {
			broker: func(o *server.Options) { o.JetStream = false },
			want:   unavailable, texts: []string{"JetStream is not enabled", "turn it on"},
		},
		"a header that JetStream does not accept": {
			stream: &jetstream.StreamConfig{},
			send:   penstock.Message{Headers: map[string]string{"Nats-Expected-Stream": "OTHER"}},
			want:   unclassified, texts: []string{"expected stream does not match"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startBroker(t, c.broker)
			r := &reader{url: "nats://" + b.addr()}
			unanswered := c.before != nil || c.stream != nil && c.stream.NoAck
			s := open(t, nats.Config{URL: b.addr(), Subject: "s.{topic}", AckWait: map[bool]time.Duration{true: 500 * time.Millisecond}[unanswered]})
			if cfg := c.stream; cfg != nil {
				sealed := cfg.Sealed
				cfg.Name, cfg.Subjects, cfg.Sealed = "S", []string{"s.>"}, false
				r.createStream(t, *cfg)
				if !cfg.NoAck {
					mustSend(t, s, messages("topic", "the first"))
				}
				if sealed {
					r.use(t, func(ctx context.Context, js jetstream.JetStream) {
						cfg.Sealed = true
						must(js.UpdateStream(ctx, *cfg))
					})
				}
			}
			if c.before != nil {
				conn := must(natsgo.Connect(b.addr()))
				t.Cleanup(conn.Close)
				c.before(t, conn)
				if err := conn.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			m := c.send
			m.ID, m.Topic, m.CreatedAt = "the second", "topic", time.Now()
			if m.Payload == nil {
				m.Payload = make([]byte, 200)
			}
			wantError(t, sendOne(t, s, m), c.want, c.texts...)
		})
	}
}

// When a stream appears later, the same message is delivered.
func TestStreamCreatedLater(t *testing.T) {
	b := startBroker(t, nil)
	s := open(t, nats.Config{URL: b.addr()})
	msgs := messages("orders.placed", "early")
	wantError(t, sendOne(t, s, msgs[0]), unclassified)
	r := &reader{url: b.addr()}
	r.createStream(t, jetstream.StreamConfig{})
	mustSend(t, s, msgs)
	if got := r.drain(t, testStream, 1); len(got) != 1 || got[0].ID != "early" {
		t.Errorf("drained %v", got)
	}
}

// An acknowledgement with "duplicate" is a confirmation, and the stream has one
// copy.
func TestDuplicateIsConfirmed(t *testing.T) {
	b := startBroker(t, nil)
	r := &reader{url: b.addr()}
	r.createStream(t, jetstream.StreamConfig{})
	msgs := messages("orders.placed", "one", "two")
	mustSend(t, open(t, nats.Config{URL: b.addr()}), msgs)
	mustSend(t, open(t, nats.Config{URL: b.addr()}), append(msgs, messages("orders.placed", "three")...))
	if got := r.drain(t, testStream, 3); len(got) != 3 {
		t.Errorf("the stream has %d messages, want 3", len(got))
	}
}

func TestCreateStream(t *testing.T) {
	b := startBroker(t, nil)
	r := &reader{url: b.addr()}
	cfg := nats.Config{URL: b.addr(), CreateStream: &nats.StreamConfig{
		Name: "MADE", Subjects: []string{"made.*"}, Storage: "memory", DuplicateWindow: 7 * time.Second,
	}}
	s := open(t, cfg)
	mustSend(t, s, messages("made.here", "1"))
	info := func() (si *jetstream.StreamInfo) {
		r.use(t, func(ctx context.Context, js jetstream.JetStream) {
			si = must(must(js.Stream(ctx, "MADE")).Info(ctx))
		})
		return si
	}
	if c := info().Config; c.Storage != jetstream.MemoryStorage || c.Duplicates != 7*time.Second || c.Replicas != 1 || c.Subjects[0] != "made.*" {
		t.Errorf("the stream was created as %+v", c)
	}

	// An existing stream is left unchanged.
	cfg.CreateStream = &nats.StreamConfig{Name: "MADE", Subjects: []string{"made.>"}}
	mustSend(t, open(t, cfg), messages("made.again", "2"))
	if c := info().Config; c.Storage != jetstream.MemoryStorage || c.Subjects[0] != "made.*" {
		t.Errorf("the existing stream was changed to %+v", c)
	}

	// A deleted stream is created again.
	r.use(t, func(ctx context.Context, js jetstream.JetStream) {
		if err := js.DeleteStream(ctx, "MADE"); err != nil {
			t.Fatal(err)
		}
	})
	wantError(t, sendOne(t, s, messages("made.here", "3")[0]), unclassified, "no JetStream stream")
	mustSend(t, s, messages("made.here", "3"))

	// Subjects of another stream.
	cfg.CreateStream = &nats.StreamConfig{Name: "OTHER", Subjects: []string{"made.here"}}
	wantError(t, sendOne(t, open(t, cfg), messages("made.here", "4")[0]), unavailable, "OTHER", "another stream")

	// Without create_stream none is created.
	plain := open(t, nats.Config{URL: b.addr()})
	wantError(t, sendOne(t, plain, messages("not.asked", "5")[0]), unclassified)
	r.use(t, func(ctx context.Context, js jetstream.JetStream) {
		if _, err := js.StreamNameBySubject(ctx, "not.asked"); !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Errorf("a stream was created unasked: %v", err)
		}
	})
}

// The server is not there when the sink is opened with create_stream.
func TestCreateStreamLater(t *testing.T) {
	b := startBroker(t, nil)
	b.stop()
	s := open(t, nats.Config{URL: b.addr(), CreateStream: &nats.StreamConfig{Name: "LATE", Subjects: []string{"late"}}})
	msgs := messages("late", "1")
	wantError(t, sendOne(t, s, msgs[0]), unavailable, "not connected to NATS at nats://"+b.addr(), "check that the server runs")
	b.start(t)
	heals(t, s, msgs[0])
}

// If a user may not publish to a subject, that message fails alone and soon. A user who may not
// use JetStream's API can still send.
func TestPermissions(t *testing.T) {
	users := func(publish, subscribe []string) func(*server.Options) {
		return func(o *server.Options) {
			o.Users = []*server.User{
				{Username: "root", Password: "root"},
				{Username: "relay", Password: "relay", Permissions: &server.Permissions{
					Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: subscribe},
				}},
			}
		}
	}
	setup := func(t *testing.T, publish, subscribe []string, cfg nats.Config) *nats.Sink {
		b := startBroker(t, users(publish, subscribe))
		r := &reader{url: b.addr(), opts: []natsgo.Option{natsgo.UserInfo("root", "root")}}
		r.createStream(t, jetstream.StreamConfig{})
		cfg.URL, cfg.User, cfg.Password = b.addr(), "relay", "relay"
		return open(t, cfg)
	}
	t.Run("publish", func(t *testing.T) {
		t.Parallel()
		s := setup(t, []string{"orders.placed"}, []string{"_INBOX.>"}, nats.Config{AckWait: 10 * sinktest.Patience})
		msgs := append(messages("orders.placed", "1", "2"), messages("orders.secret", "3")...)
		errs := s.Send(patient(t), msgs) // does not wait for an answer to the last
		if errs == nil || errs[0] != nil || errs[1] != nil {
			t.Fatalf("Send: %v", errs)
		}
		wantError(t, errs[2], unclassified, `may not publish to "orders.secret"`)
	})
	t.Run("no API", func(t *testing.T) {
		t.Parallel()
		s := setup(t, []string{"orders.>", "other.>"}, []string{"_INBOX.>"}, nats.Config{})
		wantError(t, sendOne(t, s, messages("other.topic", "1")[0]), unclassified, "no JetStream stream answered")
		mustSend(t, s, messages("orders.placed", "2"))
	})
	t.Run("inbox", func(t *testing.T) {
		t.Parallel()
		s := setup(t, []string{">"}, []string{"_RELAY.>"}, nats.Config{InboxPrefix: "_RELAY"})
		mustSend(t, s, messages("orders.placed", "1"))
	})
	t.Run("wrong inbox", func(t *testing.T) {
		t.Parallel()
		s := setup(t, []string{">"}, []string{"_RELAY.>"}, nats.Config{AckWait: 200 * time.Millisecond})
		wantError(t, sendOne(t, s, messages("orders.placed", "1")[0]), unavailable)
		for ctx := patient(t); ; { // the server reports it without a request, and late on a busy machine
			err := sendOne(t, s, messages("orders.placed", "2")[0])
			if ctx.Err() != nil || err != nil && strings.Contains(err.Error(), "inbox_prefix") {
				wantError(t, err, unavailable, "inbox_prefix")
				break
			}
		}
	})
}

// While one Send waits for room, no more than max_pending messages are out.
func TestMaxPending(t *testing.T) {
	b := startBroker(t, nil)
	conn := must(natsgo.Connect(b.addr()))
	defer conn.Close()
	const limit = 10
	arrived := make(chan *natsgo.Msg, 1000)
	must(conn.ChanSubscribe("held.>", arrived)) // stands in for a stream that answers when told
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	s := open(t, nats.Config{URL: b.addr(), MaxPending: limit, AckWait: sinktest.Patience})
	const total = 35
	ids := make([]string, total)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	done, ctx := make(chan []error, 1), patient(t)
	go func() { done <- s.Send(ctx, messages("held.x", ids...)) }()
	answered, out := 0, []*natsgo.Msg{}
	for answered < total {
		for 4*(limit-len(out)) >= limit && answered+len(out) < total { // with less than a quarter free the sink waits
			select {
			case m := <-arrived:
				out = append(out, m)
			case <-ctx.Done():
				t.Fatalf("%d answered, %d out, no more come", answered, len(out))
			}
		}
		// A round trip: anything that the sink sent beyond the limit would have arrived.
		if err := conn.Flush(); err != nil {
			t.Fatal(err)
		}
		if more := len(arrived); len(out)+more > limit {
			t.Fatalf("%d messages are out, the limit is %d", len(out)+more, limit)
		}
		for _, m := range out {
			if err := m.Respond([]byte(`{"stream":"HELD","seq":1}`)); err != nil {
				t.Fatal(err)
			}
		}
		answered += len(out)
		out = out[:0]
	}
	if errs := <-done; errs != nil {
		t.Error(errs)
	}
}
