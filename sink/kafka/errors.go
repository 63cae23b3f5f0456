package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tlsconfig"
)

// aboutTopic: true of every message to the topic, and of no other.
func aboutTopic(e *kerr.Error) bool {
	switch e {
	case kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InvalidTopicException, kerr.TopicAuthorizationFailed:
		return true
	}
	return false
}

// aboutAll: true of every message, whatever its topic.
func aboutAll(e *kerr.Error) bool {
	switch e {
	case kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed, kerr.SaslAuthenticationFailed,
		kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState, kerr.SecurityDisabled, kerr.UnsupportedVersion,
		kerr.UnsupportedForMessageFormat, kerr.UnsupportedCompressionType, kerr.InvalidRequiredAcks,
		kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.ProducerFenced:
		return true
	}
	return false
}

// verdict classifies a record's error for the relay. A refused batch counts for its record only if
// it had no other (see isolate).
func (s *Sink) verdict(ctx context.Context, p *producer, r *kgo.Record, err error) error {
	var e *kerr.Error
	switch {
	case errors.Is(err, kgo.ErrClientClosed) && p.over():
		if p.err == errAbandoned {
			return s.unanswered(ctx, r.Topic)
		}
		return s.unreachable(ctx, p.err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return s.unanswered(ctx, r.Topic)
	case !errors.As(err, &e):
		return penstock.Unavailable(fmt.Errorf("no confirmation of the message to topic %q: %w", r.Topic, err))
	}

	said := fmt.Errorf("the broker refused the message to topic %q: %w", r.Topic, err)
	switch {
	case e == kerr.UnknownTopicOrPartition, e == kerr.UnknownTopicID:
		p.lost(r.Topic)
		hint := "create it, or correct the topic of the message or the topic template; create_topics lets the broker create topics"
		if s.cfg.CreateTopics {
			hint = "create it; the broker did not, see its auto.create.topics.enable"
		}
		return penstock.WithHint(fmt.Errorf("there is no Kafka topic %q", r.Topic), "%s", hint)
	case e == kerr.TopicAuthorizationFailed:
		p.lost(r.Topic)
		return penstock.WithHint(said, "give the user Write and Describe on the topic")
	case e == kerr.InvalidTopicException:
		p.lost(r.Topic)
		return penstock.Permanent(penstock.WithHint(said, "change the topic of the message or the topic template"))
	case e == kerr.MessageTooLarge, e == kerr.RecordListTooLarge:
		return penstock.Permanent(penstock.WithHint(said,
			"the message must fit max_message_bytes (%d) and the topic's max.message.bytes: raise the lower one, or set claim_check, which sends a reference", s.cfg.MaxMessageBytes))
	case e == kerr.InvalidRecord:
		return penstock.Permanent(penstock.WithHint(said, "a compacted topic takes no message without a key"))
	case e == kerr.InvalidTimestamp && s.cfg.Timestamp == timestampCreated:
		return penstock.Permanent(penstock.WithHint(said, "the topic takes no message of that age (message.timestamp.before.max.ms); set timestamp to sent"))
	case e == kerr.InvalidTimestamp:
		return penstock.WithHint(said, "set the clocks of this machine and of the brokers right")
	case aboutAll(e):
		p.end(err) // the library would continue to fail with it
		return s.unreachable(ctx, err)
	case e.Retriable && e != kerr.CorruptMessage:
		return penstock.Unavailable(said)
	}
	return said
}

// unanswered: the send timed out.
func (s *Sink) unanswered(ctx context.Context, topic string) error {
	cause := context.Cause(ctx)
	if cause != errTime {
		return penstock.Unavailable(fmt.Errorf("no confirmation of the message to Kafka topic %q in time: %w", topic, cause))
	}
	return penstock.Unavailable(penstock.WithHint(fmt.Errorf("no confirmation of the message to Kafka topic %q within %v", topic, s.cfg.DeliveryTimeout),
		"see that each partition of the topic has a leader and as many in-sync replicas as its min.insync.replicas says"))
}

func closed() error {
	return penstock.Unavailable(fmt.Errorf("the Kafka sink: %w", penstock.ErrClosed))
}

// unreachable explains why no broker accepts anything.
func (s *Sink) unreachable(ctx context.Context, err error) error {
	if errors.Is(err, penstock.ErrClosed) {
		return closed()
	}
	var (
		network *net.OpError
		eof     *kgo.ErrFirstReadEOF
		login   *loginError
		hint    = cmp.Or(tlsconfig.Hint(err), "see that a broker runs and that url names it; the relay tries again")
	)
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		return penstock.Unavailable(fmt.Errorf("no Kafka broker answered in time: %w", err))
	case errors.Is(err, errChanged):
		return penstock.Unavailable(fmt.Errorf("nothing was sent: %w", err))
	case errors.As(err, &login):
		hint = login.hint
	case tlsconfig.Hint(err) != "": // the hint already
	case errors.As(err, &network) && network.Op == "remote error": // an alert, though this side has accepted the handshake
		hint = "set tls.cert_file and tls.key_file to a certificate that the brokers trust"
	case errors.As(err, &eof), errors.Is(err, io.EOF): // a broker that closes the connection gives no reason
		hint = "see whether that port expects TLS (kafkas://) or none (kafka://), and a user, and check user, password and sasl"
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		hint = "check user, password and sasl"
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		hint = "choose a sasl mechanism that the brokers offer"
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		hint = "give the user Write on the topics; before Kafka 2.8 also IdempotentWrite on the cluster"
	case errors.Is(err, kerr.UnsupportedVersion):
		hint = "the brokers must be Kafka 0.11 or newer"
	case strings.HasPrefix(s.cfg.URL, "kafka://") && !errors.As(err, &network) && !errors.As(err, new(*kerr.Error)): // it answers, but does not speak Kafka's protocol
		hint = "see whether that port is a Kafka broker's and expects TLS (kafkas://)"
	}
	return penstock.Unavailable(penstock.WithHint(fmt.Errorf("no Kafka broker can be reached: %w", err), "%s", hint))
}
