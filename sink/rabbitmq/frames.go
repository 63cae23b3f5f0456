package rabbitmq

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/attributes"
)

// The part of AMQP 0-9-1 that publishing takes: frames, five methods to write
// and seven to read.
//
//	frame = type (1 byte), channel (2), size (4), payload, 0xCE
const (
	frameMethod = 1
	frameHeader = 2
	frameBody   = 3

	frameHead = 7
	frameEnd  = 0xCE
)

// A method is its class and its number within the class.
type method uint32

const (
	channelOpen     method = 20<<16 | 10
	channelOpenOK   method = 20<<16 | 11
	channelClose    method = 20<<16 | 40
	channelCloseOK  method = 20<<16 | 41
	basicPublish    method = 60<<16 | 40
	basicReturn     method = 60<<16 | 50
	basicAck        method = 60<<16 | 80
	basicNack       method = 60<<16 | 120
	confirmSelect   method = 85<<16 | 10
	confirmSelectOK method = 85<<16 | 11
)

// Property flags, in the order in which the properties follow.
const (
	flagContentType     = 1 << 15
	flagContentEncoding = 1 << 14
	flagHeaders         = 1 << 13
	flagDeliveryMode    = 1 << 12
	flagPriority        = 1 << 11
	flagCorrelationID   = 1 << 10
	flagReplyTo         = 1 << 9
	flagExpiration      = 1 << 8
	flagMessageID       = 1 << 7
	flagTimestamp       = 1 << 6
)

const (
	persistent = 2
	mandatory  = 1
)

// frames appends frames of one channel.
type frames struct {
	buf     []byte
	channel uint16
	start   int // of the open frame
}

func (f *frames) begin(kind byte) {
	f.start = len(f.buf)
	f.buf = append(f.buf, kind)
	f.buf = binary.BigEndian.AppendUint16(f.buf, f.channel)
	f.buf = append(f.buf, 0, 0, 0, 0)
}

func (f *frames) end() {
	binary.BigEndian.PutUint32(f.buf[f.start+3:], uint32(len(f.buf)-f.start-frameHead))
	f.buf = append(f.buf, frameEnd)
}

// method appends a whole method frame whose arguments are known.
func (f *frames) method(m method, arguments ...byte) {
	f.begin(frameMethod)
	f.buf = binary.BigEndian.AppendUint32(f.buf, uint32(m))
	f.buf = append(f.buf, arguments...)
	f.end()
}

// short appends a string of at most 255 bytes.
func (f *frames) short(s string) {
	f.buf = append(f.buf, byte(len(s)))
	f.buf = append(f.buf, s...)
}

// text appends an entry of a table.
func (f *frames) text(name, value string) {
	f.short(name)
	f.buf = append(f.buf, 'S')
	f.buf = binary.BigEndian.AppendUint32(f.buf, uint32(len(value)))
	f.buf = append(f.buf, value...)
}

// publish appends a message: the method, its properties, and the payload in as
// many frames as it takes. Lengths were checked by routingKey.
func (f *frames) publish(m *penstock.Message, exchange, key string, withCreatedAt bool, maxFrame int) {
	f.begin(frameMethod)
	f.buf = binary.BigEndian.AppendUint32(f.buf, uint32(basicPublish))
	f.buf = append(f.buf, 0, 0) // reserved
	f.short(exchange)
	f.short(key)
	f.buf = append(f.buf, mandatory)
	f.end()

	f.begin(frameHeader)
	f.buf = append(f.buf, 0, byte(basicPublish>>16), 0, 0) // class, weight
	f.buf = binary.BigEndian.AppendUint64(f.buf, uint64(len(m.Payload)))
	f.properties(m, key, withCreatedAt)
	f.end()

	for body := m.Payload; len(body) > 0; {
		n := min(len(body), maxFrame-frameHead-1)
		f.begin(frameBody)
		f.buf = append(f.buf, body[:n]...)
		f.end()
		body = body[n:]
	}
}

func (f *frames) properties(m *penstock.Message, key string, withCreatedAt bool) {
	at := len(f.buf)
	flags := uint16(flagDeliveryMode)
	f.buf = append(f.buf, 0, 0)
	own := len(m.Headers)
	if contentType, ok := m.Headers[headerContentType]; ok {
		flags |= flagContentType
		f.short(contentType)
		own--
	}
	if m.Key != "" || m.Topic != key || m.Attempt > 1 || withCreatedAt || own > 0 {
		flags |= flagHeaders
		f.headers(m, key, withCreatedAt)
	}
	f.buf = append(f.buf, persistent)
	if m.ID != "" {
		flags |= flagMessageID
		f.short(m.ID)
	}
	if !m.CreatedAt.IsZero() {
		flags |= flagTimestamp
		f.buf = binary.BigEndian.AppendUint64(f.buf, uint64(m.CreatedAt.Unix()))
	}
	binary.BigEndian.PutUint16(f.buf[at:], flags)
}

// headers appends as few as it can, and none that repeats a property or the routing key. Each byte of properties costs
// RabbitMQ time, and those beyond the 64th much more (see DESIGN.md).
func (f *frames) headers(m *penstock.Message, key string, withCreatedAt bool) {
	at := len(f.buf)
	f.buf = append(f.buf, 0, 0, 0, 0)
	for name, value := range m.Headers {
		if !added(name) && name != headerContentType {
			f.text(name, value)
		}
	}
	if m.Key != "" {
		f.text(attributes.Key, m.Key)
	}
	if m.Topic != key {
		f.text(attributes.Topic, m.Topic)
	}
	if m.Attempt > 1 {
		f.short(attributes.Attempt)
		f.buf = append(f.buf, 'I')
		f.buf = binary.BigEndian.AppendUint32(f.buf, uint32(m.Attempt))
	}
	if withCreatedAt {
		f.text(attributes.CreatedAt, m.CreatedAt.UTC().Format(time.RFC3339Nano))
	}
	binary.BigEndian.PutUint32(f.buf[at:], uint32(len(f.buf)-at-4))
}

// errMalformed: the broker sent bytes that are not AMQP. The connection is given up.
var errMalformed = errors.New("RabbitMQ sent a frame that cannot be read")

// arguments reads the arguments of a method. After the first that is not there,
// everything is zero and bad is true.
type arguments struct {
	rest []byte
	bad  bool
}

func (a *arguments) take(n int) []byte {
	if len(a.rest) < n {
		a.rest, a.bad = nil, true
		return make([]byte, n)
	}
	b := a.rest[:n]
	a.rest = a.rest[n:]
	return b
}

func (a *arguments) uint8() uint8   { return a.take(1)[0] }
func (a *arguments) uint16() uint16 { return binary.BigEndian.Uint16(a.take(2)) }
func (a *arguments) uint64() uint64 { return binary.BigEndian.Uint64(a.take(8)) }
func (a *arguments) short() string  { return string(a.take(int(a.uint8()))) }

// messageID finds the message id in the payload of a content header.
func messageID(payload []byte) (string, error) {
	a := arguments{rest: payload}
	a.take(2 + 2 + 8) // class, weight, body size
	flags := a.uint16()
	if flags&flagContentType != 0 {
		a.short()
	}
	if flags&flagContentEncoding != 0 {
		a.short()
	}
	if flags&flagHeaders != 0 {
		if size := binary.BigEndian.Uint32(a.take(4)); int64(size) <= int64(len(a.rest)) {
			a.take(int(size))
		} else {
			a.bad = true
		}
	}
	if flags&flagDeliveryMode != 0 {
		a.take(1)
	}
	if flags&flagPriority != 0 {
		a.take(1)
	}
	for _, flag := range []uint16{flagCorrelationID, flagReplyTo, flagExpiration} {
		if flags&flag != 0 {
			a.short()
		}
	}
	id := ""
	if flags&flagMessageID != 0 {
		id = a.short()
	}
	if a.bad {
		return "", fmt.Errorf("%w: content header", errMalformed)
	}
	return id, nil
}
