package readback

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock/penstock"
)

// natsStream reads a JetStream stream of the run's own.
type natsStream struct {
	server  string // empty: the embedded one, which the sink runs
	sinkURL string
	stream  string
	prefix  string // of the stream's subjects

	conn *nats.Conn
	js   jetstream.JetStream
}

func newNATS(sinkURL, name string) *natsStream {
	n := natsNames(name)
	n.server, _, _ = strings.Cut(sinkURL, "?")
	n.sinkURL = n.routed(sinkURL, map[string]string{})
	return n
}

// newEmbeddedNATS puts the server's files into dir, unless the sink names a
// directory. The sink makes the stream, as it does for everybody who uses the
// embedded server.
func newEmbeddedNATS(sinkURL, dir, name string) *natsStream {
	n := natsNames(name)
	target, query, _ := strings.Cut(sinkURL, "?")
	if target == "embedded" || target == "embedded:" {
		target = "embedded:" + dir
	}
	n.sinkURL = n.routed(target+"?"+query, map[string]string{"create_stream.name": n.stream, "create_stream.subjects": n.prefix + ".>"})
	return n
}

func natsNames(name string) *natsStream {
	return &natsStream{stream: name, prefix: strings.ReplaceAll(name, "_", "-")}
}

// routed is a sink URL whose messages go to this run's stream.
func (n *natsStream) routed(sinkURL string, set map[string]string) string {
	target, _, _ := strings.Cut(sinkURL, "?")
	set["subject"] = n.prefix + ".{topic}"
	routed, err := withQuery(sinkURL, set)
	if err != nil {
		return target // the sink will say what is wrong with its query
	}
	return routed
}

func (n *natsStream) SinkURL() string { return n.sinkURL }

// endSubject is where the mark goes.
func (n *natsStream) endSubject() string { return n.prefix + ".end" }

func (n *natsStream) Open(ctx context.Context, sink penstock.Sink) error {
	options := []nats.Option{nats.Name("penstock: consumer"), nats.Timeout(5 * time.Second), nats.MaxReconnects(-1)}
	if n.server == "" {
		host, ok := sink.(interface {
			InProcess() nats.InProcessConnProvider
		})
		if !ok {
			return errors.New("the sink does not run the embedded server")
		}
		options = append(options, nats.InProcessServer(host.InProcess()))
	}
	conn, err := nats.Connect(n.server, options...)
	if err != nil {
		return penstock.Unavailable(penstock.WithHint(fmt.Errorf("the consumer cannot connect to NATS: %w", err),
			"check that the server is up and that --sink has its host and credentials"))
	}
	n.conn = conn
	if n.js, err = jetstream.New(conn); err != nil {
		return err
	}
	if n.server == "" {
		return nil
	}
	_, err = n.js.CreateStream(ctx, jetstream.StreamConfig{Name: n.stream, Subjects: []string{n.prefix + ".>"}})
	if err != nil {
		return penstock.WithHint(fmt.Errorf("creating the consumer's stream: %w", err), "the server needs JetStream (nats-server -js), and the user the right to create streams")
	}
	return nil
}

func (n *natsStream) Read(ctx context.Context, got func(Arrival)) error {
	consumer, err := n.js.OrderedConsumer(ctx, n.stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return fmt.Errorf("reading stream %s: %w", n.stream, err)
	}
	ended := make(chan struct{})
	reading, err := consumer.Consume(func(m jetstream.Msg) {
		if m.Subject() == n.endSubject() {
			close(ended)
			return
		}
		got(Arrival{ID: m.Headers().Get("Nats-Msg-Id"), Key: m.Headers().Get("Penstock-Key"), Payload: m.Data()})
	})
	if err != nil {
		return fmt.Errorf("reading stream %s: %w", n.stream, err)
	}
	defer func() {
		reading.Stop()
		<-reading.Closed()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *natsStream) Finish(ctx context.Context) error {
	if _, err := n.js.Publish(ctx, n.endSubject(), nil); err != nil {
		return fmt.Errorf("publishing the end mark to stream %s: %w", n.stream, err)
	}
	return nil
}

func (n *natsStream) Remove(ctx context.Context) error {
	if err := n.js.DeleteStream(ctx, n.stream); err != nil {
		return fmt.Errorf("deleting stream %s: %w", n.stream, err)
	}
	return nil
}

func (n *natsStream) Close() error {
	if n.conn != nil {
		n.conn.Close()
	}
	return nil
}
