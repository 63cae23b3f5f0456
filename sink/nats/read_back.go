package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/readback"
)

// reader reads a JetStream stream of the run's own.
type reader struct {
	server  string // empty: the embedded one, which the sink runs
	sinkURL string
	stream  string
	prefix  string // of the stream's subjects

	conn *nats.Conn
	js   jetstream.JetStream
}

// readBack is Driver.ReadBack.
func readBack(sinkURL, dir, name string) (readback.Broker, error) {
	if strings.HasPrefix(sinkURL, "embedded") {
		return readEmbedded(sinkURL, dir, name), nil
	}
	n := newReader(name)
	n.server, _, _ = strings.Cut(sinkURL, "?")
	n.sinkURL = n.routed(sinkURL, map[string]string{})
	return n, nil
}

// readEmbedded puts the server's files into dir, unless the sink names a directory. The sink makes
// the stream, as it does for every user of the embedded server.
func readEmbedded(sinkURL, dir, name string) *reader {
	n := newReader(name)
	target, query, _ := strings.Cut(sinkURL, "?")
	if target == "embedded" || target == "embedded:" {
		target = "embedded:" + dir
	}
	n.sinkURL = n.routed(target+"?"+query, map[string]string{"create_stream.name": n.stream, "create_stream.subjects": n.prefix + ".>"})
	return n
}

func newReader(name string) *reader {
	return &reader{stream: name, prefix: strings.ReplaceAll(name, "_", "-")}
}

// routed is a sink URL whose messages go to this run's stream.
func (n *reader) routed(sinkURL string, set map[string]string) string {
	target, _, _ := strings.Cut(sinkURL, "?")
	set["subject"] = n.prefix + ".{topic}"
	routed, err := readback.WithQuery(sinkURL, set)
	if err != nil {
		return target // the sink will report the fault in its query
	}
	return routed
}

func (n *reader) SinkURL() string { return n.sinkURL }

// endSubject is where the end marker goes.
func (n *reader) endSubject() string { return n.prefix + ".end" }

func (n *reader) Open(ctx context.Context, sink driver.Sink) error {
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

func (n *reader) Read(ctx context.Context, got func(readback.Arrival)) error {
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
		got(readback.Arrival{ID: m.Headers().Get("Nats-Msg-Id"), Key: m.Headers().Get("Penstock-Key"), Payload: m.Data()})
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

func (n *reader) Finish(ctx context.Context) error {
	if _, err := n.js.Publish(ctx, n.endSubject(), nil); err != nil {
		return fmt.Errorf("publishing the end marker to stream %s: %w", n.stream, err)
	}
	return nil
}

func (n *reader) Remove(ctx context.Context) error {
	if err := n.js.DeleteStream(ctx, n.stream); err != nil {
		return fmt.Errorf("deleting stream %s: %w", n.stream, err)
	}
	return nil
}

func (n *reader) Close() error {
	if n.conn != nil {
		n.conn.Close()
	}
	return nil
}
