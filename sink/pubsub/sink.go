// Package pubsub publishes messages to topics of Google Cloud Pub/Sub.
//
//	message          Pub/Sub
//	Topic            topic (by the template topic), attribute penstock-topic
//	ID               attribute penstock-id
//	Key              ordering key, attribute penstock-key
//	CreatedAt        attribute penstock-created-at: RFC 3339, nanoseconds, UTC
//	Attempt          attribute penstock-attempt, from the second on
//	Headers          attributes of the same name
//	Payload          data
//
// A subscription delivers in order only if it was made with message ordering. DESIGN.md has more.
package pubsub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/descriptor"
	"github.com/penstock/penstock/internal/gate"
	"github.com/penstock/penstock/internal/template"
)

// Driver describes this sink for the list in internal/drivers.
var Driver = descriptor.Sink[Config]{
	Name: "pubsub", Usage: "pubsub://PROJECT/TOPIC", Schemes: []string{"pubsub"},
	Parse: ParseURL, Open: descriptor.Opens(Open),
	// https://github.com/googleapis/google-cloudevents/blob/main/docs/spec/pubsub.md, a draft.
	Binding: descriptor.Headers("pubsub", "ce-"),
	Reach:   descriptor.Reaches(Open, (*Sink).reach), ReadBack: readBack,
}

// Sink publishes messages to topics. It is safe for concurrent use.
type Sink struct {
	cfg   Config
	topic *template.Template
	link  link
	slots chan struct{}
	gate  gate.Gate
}

var _ driver.InOrderSink = (*Sink)(nil)

// Open checks the configuration. The service need not be up, and no credentials are asked for yet.
func Open(cfg Config, log *slog.Logger) (*Sink, error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("pubsub sink: %w", err)
	}
	topic, err := template.Parse(cfg.Topic)
	s := &Sink{cfg: cfg, topic: topic, slots: make(chan struct{}, cfg.Concurrency)}
	s.link.cfg = &s.cfg
	return s, err
}

// KeepsOrder returns true: requests of a key follow each other, and none follows one that failed.
func (*Sink) KeepsOrder() bool { return true }

// Send publishes the messages and waits for the answers. The messages of a key are in a request
// together, because a request has one ordering key.
//
// Unavailable: the service cannot be reached, refuses the credentials, has no such topic or a quota
// is used up. Permanent: the message exceeds a limit of the service. Unclassified: the topic's name
// depends on the message, and it does not exist or the account may not publish to it.
func (s *Sink) Send(ctx context.Context, msgs []penstock.Message) []error {
	return s.gate.Send(ctx, msgs, errClosed, func(ctx context.Context, errs []error) {
		var running sync.WaitGroup
		for _, line := range lines(msgs) {
			running.Go(func() { s.sendLine(ctx, msgs, line, errs) })
		}
		running.Wait()
	})
}

// lines are the indexes of the messages of each key. Messages without a key are in lines of the
// largest request.
func lines(msgs []penstock.Message) [][]int {
	var all [][]int
	of := map[string]int{}
	for i := range msgs {
		key := msgs[i].Key
		at, ok := of[key]
		if !ok || key == "" && len(all[at]) == maxRequestMessages {
			at = len(all)
			all, of[key] = append(all, nil), at
		}
		all[at] = append(all[at], i)
	}
	return all
}

// request has the messages that one request publishes.
type request struct {
	topic    string
	messages []*pubsubpb.PubsubMessage
	indexes  []int
	bytes    int
}

// sendLine publishes the messages of one key in order, or messages without a key.
func (s *Sink) sendLine(ctx context.Context, msgs []penstock.Message, line []int, errs []error) {
	var r request
	for n, i := range line {
		topic, err := s.topicOf(&msgs[i])
		var p *pubsubpb.PubsubMessage
		var bytes int
		if err == nil {
			p, bytes, err = encode(&msgs[i], topic)
		}
		full := len(r.messages) == maxRequestMessages || r.bytes+bytes > maxRequestBytes
		if err != nil || len(r.messages) > 0 && (full || topic != r.topic) {
			if !s.publish(ctx, &r, errs) {
				hold(line[n:], errs)
				return
			}
			r = request{}
		}
		if err != nil {
			if errs[i] = err; msgs[i].Key != "" {
				hold(line[n+1:], errs)
				return
			}
			continue
		}
		if len(r.messages) == 0 {
			r.topic, r.bytes = topic, emptyRequest(topic)
		}
		r.messages, r.indexes, r.bytes = append(r.messages, p), append(r.indexes, i), r.bytes+bytes
	}
	s.publish(ctx, &r, errs)
}

// publish sends the request and notes its verdict. It reports whether the messages behind it may be
// sent: always without a key.
func (s *Sink) publish(ctx context.Context, r *request, errs []error) bool {
	if len(r.messages) == 0 {
		return true
	}
	keyed := r.messages[0].OrderingKey != ""
	err := s.ask(ctx, r)
	if len(r.messages) > 1 && aboutMessages(err) {
		// It was refused for one of them, and the answer does not say for which.
		for n := range r.messages {
			one := request{r.topic, r.messages[n : n+1], r.indexes[n : n+1], 0}
			if !s.publish(ctx, &one, errs) {
				hold(r.indexes[n+1:], errs)
				return false
			}
		}
		return true
	}
	for _, i := range r.indexes {
		errs[i] = s.verdict(ctx, r.topic, err)
	}
	return err == nil || !keyed
}

var errHeldBack = errors.New("held back: an earlier message with the same key was not accepted")

// hold notes that the messages of a key behind one that failed were not sent.
func hold(behind []int, errs []error) {
	for _, i := range behind {
		errs[i] = errHeldBack
	}
}

// topicOf is the full name of a message's topic. A value cannot name another project: that takes a slash.
func (s *Sink) topicOf(m *penstock.Message) (string, error) {
	name, err := s.topic.Escape(m, template.Hyphens(named))
	return "projects/" + s.cfg.Project + "/topics/" + name, err
}

// ask makes the request, and counts an answer for another number of messages as none.
func (s *Sink) ask(ctx context.Context, r *request) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	client, err := s.link.get(ctx)
	if err != nil {
		return err
	}
	timed, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	answer, err := client.Publish(timed, &pubsubpb.PublishRequest{Topic: r.topic, Messages: r.messages})
	if err == nil && len(answer.MessageIds) != len(r.messages) {
		err = fmt.Errorf("an answer for %d of %d messages", len(answer.MessageIds), len(r.messages))
	}
	return err
}

// Close waits for running Sends until ctx ends. Those that run longer end with an Unavailable error.
func (s *Sink) Close(ctx context.Context) error {
	return s.gate.CloseSink(ctx, "Pub/Sub", s.link.close)
}

var errClosed = penstock.Unavailable(fmt.Errorf("pubsub sink: %w", penstock.ErrClosed))

// reach asks for the topic, if it is always the same.
func (s *Sink) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	client, err := s.link.get(ctx)
	name, _ := s.topicOf(&penstock.Message{})
	if err == nil && s.topic.Fixed() {
		_, err = client.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: name})
	}
	return s.verdict(ctx, name, err)
}
