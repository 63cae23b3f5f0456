package kafka

import (
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/attributes"
)

// reserved reports whether the sink sets a header itself. The key is that of the record.
func reserved(name string) bool { return name != attributes.Key && attributes.IsOwn(name) }

// ownHeaders is how many headers the sink adds at most.
const ownHeaders = 4

// encoder turns messages into records. All keys and header values of one Send are in one piece of
// memory, and all headers in another, so a message allocates nothing.
type encoder struct {
	text    []byte
	headers []kgo.RecordHeader
	created bool // record timestamps are the messages' times
	now     time.Time
	stamped time.Time // the value of stamp
	stamp   []byte
}

func newEncoder(msgs []penstock.Message, created bool) *encoder {
	text, headers := 0, 0
	for i := range msgs {
		m := &msgs[i]
		text += len(m.ID) + len(m.Key)
		headers += ownHeaders + len(m.Headers)
		for _, v := range m.Headers {
			text += len(v)
		}
	}
	return &encoder{text: make([]byte, 0, text), headers: make([]kgo.RecordHeader, 0, headers), created: created, now: time.Now()}
}

// record fills r from m. r shares m's payload.
func (e *encoder) record(r *kgo.Record, m *penstock.Message, topic string) {
	r.Topic = topic
	if m.Key != "" {
		r.Key = e.bytes(m.Key)
	}
	// A null value means "deleted" to a compacted topic; an empty payload is a
	// payload.
	if r.Value = m.Payload; r.Value == nil {
		r.Value = []byte{}
	}
	r.Timestamp = e.now
	if e.created {
		r.Timestamp = m.CreatedAt
	}

	first := len(e.headers)
	e.headers = append(e.headers,
		kgo.RecordHeader{Key: attributes.ID, Value: e.bytes(m.ID)},
		kgo.RecordHeader{Key: attributes.CreatedAt, Value: e.time(m.CreatedAt)})
	if topic != m.Topic {
		e.headers = append(e.headers, kgo.RecordHeader{Key: attributes.Topic, Value: []byte(m.Topic)})
	}
	if m.Attempt > 1 {
		e.headers = append(e.headers, kgo.RecordHeader{Key: attributes.Attempt, Value: strconv.AppendInt(nil, int64(m.Attempt), 10)})
	}
	for name, value := range m.Headers {
		if !reserved(name) {
			e.headers = append(e.headers, kgo.RecordHeader{Key: name, Value: e.bytes(value)})
		}
	}
	r.Headers = e.headers[first:len(e.headers):len(e.headers)]
}

func (e *encoder) bytes(s string) []byte {
	first := len(e.text)
	e.text = append(e.text, s...)
	return e.text[first:len(e.text):len(e.text)]
}

// time is RFC 3339 with fractions. The messages of one transaction share it.
func (e *encoder) time(t time.Time) []byte {
	if e.stamp == nil || !t.Equal(e.stamped) {
		e.stamped, e.stamp = t, t.UTC().AppendFormat(nil, time.RFC3339Nano)
	}
	return e.stamp
}

// maxTopicName is Kafka's limit, in bytes.
const maxTopicName = 249

// checkTopic returns a Permanent error for topics that no broker accepts, and for topics in which
// a cluster keeps its own state: a producer's topic is data.
func checkTopic(name string) error {
	switch name {
	case "", ".", "..":
		return badTopic(name, "has no usable name")
	case "__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata":
		return badTopic(name, "belongs to the brokers")
	}
	if len(name) > maxTopicName {
		return badTopic(name[:20]+"…", fmt.Sprintf("has a name of %d bytes, more than %d", len(name), maxTopicName))
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return badTopic(name, "has a name that Kafka does not allow")
		}
	}
	return nil
}

func badTopic(name, problem string) error {
	return penstock.Permanent(penstock.WithHint(fmt.Errorf("the Kafka topic %q %s", name, problem),
		"topics are called by letters, digits, dots, underscores and dashes; change the topic of the message or the topic template"))
}

// checkSize returns a Permanent error for a record that does not fit into a batch alone. It counts
// a few bytes more than there are.
func checkSize(r *kgo.Record, limit int) error {
	const perBatch, perRecord, perHeader = 80, 40, 10
	size := perBatch + perRecord + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += perHeader + len(h.Key) + len(h.Value)
	}
	if size <= limit {
		return nil
	}
	return penstock.Permanent(penstock.WithHint(fmt.Errorf("the message is %d bytes with its headers, too large for max_message_bytes (%d)", size, limit),
		"raise it, and max.message.bytes of the topic, or set claim_check, which sends a reference"))
}
