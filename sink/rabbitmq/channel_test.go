package rabbitmq

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/penstock/penstock"
)

// testChannel is a channel whose broker is the test.
func testChannel(t testing.TB, pending int) *channel {
	t.Helper()
	here, there := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, there) }()
	cfg := &Config{MaxPending: pending}
	cfg.SetDefaults()
	conn := &connection{wire: newWire(here), cfg: cfg, frame: frameSize, gone: make(chan struct{})}
	t.Cleanup(func() { _ = conn.wire.Close() })
	return newChannel(conn, 7)
}

// publishTo puts messages on the channel as send does, without waiting.
func publishTo(t testing.TB, c *channel, ids ...string) *batch {
	t.Helper()
	out := outgoing{errs: &verdicts{n: len(ids)}}
	for i, id := range ids {
		out.msgs = append(out.msgs, penstock.Message{ID: id})
		out.todo, out.keys = append(out.todo, i), append(out.keys, "somewhere")
	}
	if !c.slots.TryAcquire(int64(len(ids))) {
		t.Fatal("no room")
	}
	b := newBatch(out)
	if n, ok := c.publish(b, 0); n != len(ids) || !ok {
		t.Fatalf("published %d of %d: %v", n, len(ids), ok)
	}
	return b
}

func (b *batch) isDone() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// The broker may answer in any order, one by one or many at once, and the ring goes round many
// times.
func TestAnswersInAnyOrder(t *testing.T) {
	c := testChannel(t, 8)
	for range 100 {
		first := c.next
		a := publishTo(t, c, "1", "2", "3")
		b := publishTo(t, c, "4", "5", "6", "7", "8")
		steps := []struct {
			tag             uint64
			multiple, acked bool
		}{{5, false, true}, {2, false, false}, {1, true, true}, {7, true, true}}
		for _, s := range steps {
			if err := c.answer(first+s.tag, s.multiple, s.acked); err != nil {
				t.Fatal(err)
			}
		}
		if !a.isDone() || !b.isDone() {
			t.Fatalf("left: %d, %d", a.left, b.left)
		}
		if errs := a.errs.errs; errs == nil || errs[0] != nil || errs[1] != nil || errs[2] == nil {
			t.Fatalf("only the third had a nack: %v", errs)
		}
		if b.errs.errs != nil {
			t.Fatalf("all had an ack: %v", b.errs.errs)
		}
	}
}

// A message that waits for an early answer keeps its place, so the ring never laps it.
func TestRoomIsGivenInOrder(t *testing.T) {
	c := testChannel(t, 4)
	publishTo(t, c, "1", "2", "3", "4")
	for tag := uint64(2); tag <= 4; tag++ {
		if err := c.answer(tag, false, true); err != nil {
			t.Fatal(err)
		}
	}
	if c.slots.TryAcquire(1) {
		t.Fatal("the first still waits, and there is room for a fifth")
	}
	if err := c.answer(1, false, true); err != nil {
		t.Fatal(err)
	}
	if !c.slots.TryAcquire(4) {
		t.Fatal("all are answered, and there is no room")
	}
}

func TestMultipleZeroMeansAll(t *testing.T) {
	c := testChannel(t, 4)
	b := publishTo(t, c, "1", "2")
	if err := c.answer(0, true, true); err != nil || !b.isDone() || b.errs.errs != nil {
		t.Fatal(err, b.left, b.errs.errs)
	}
}

// An answer to a message that was never sent ends the connection, rather than confirm something.
func TestAnswersToNothing(t *testing.T) {
	c := testChannel(t, 4)
	publishTo(t, c, "1", "2")
	if err := c.answer(1, true, true); err != nil {
		t.Fatal(err)
	}
	for _, tag := range []uint64{0, 1, 3, 1 << 63} {
		if err := c.answer(tag, false, true); !errors.Is(err, errMalformed) {
			t.Errorf("an answer to %d: %v", tag, err)
		}
	}
	if err := c.answer(3, true, true); !errors.Is(err, errMalformed) {
		t.Errorf("an answer to all up to 3: %v", err)
	}
}

// Another Send has filled the buffer since this one asked for room. It still continues, one
// message at a time.
func TestPublishWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := fullWire(t)
		cfg := &Config{MaxPending: 8}
		cfg.SetDefaults()
		c := newChannel(&connection{wire: w, cfg: cfg, frame: frameSize}, 7)
		b := newBatch(outgoing{msgs: make([]penstock.Message, 3), todo: []int{0, 1, 2}, keys: make([]string, 3)})
		for n := range 3 {
			if next, ok := c.publish(b, n); next != n+1 || !ok {
				t.Fatalf("publish(%d) = %d, %v", n, next, ok)
			}
		}
	})
}

// An incomplete ack confirms nothing.
func TestHalfAnAck(t *testing.T) {
	c := testChannel(t, 4)
	b := publishTo(t, c, "1")
	ack := append(binary.BigEndian.AppendUint32(nil, uint32(basicAck)), 0, 0, 0, 0, 0, 0, 0, 1)
	if err := c.frame(frameMethod, ack); !errors.Is(err, errMalformed) || b.isDone() {
		t.Errorf("%v, answered: %v", err, b.isDone())
	}
	if err := c.frame(frameMethod, append(ack, 0)); err != nil || !b.isDone() {
		t.Errorf("the whole ack: %v, answered: %v", err, b.isDone())
	}
}

// Whatever a broker sends, the channel neither panics nor waits.
func FuzzChannelFrame(f *testing.F) {
	frame := func(m method, arguments ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(m)), arguments...)
	}
	header := make([]byte, 14)
	f.Add(byte(frameMethod), frame(basicAck, 0, 0, 0, 0, 0, 0, 0, 2, 1), byte(frameMethod), frame(confirmSelectOK))
	f.Add(byte(frameMethod), frame(basicReturn, 1, 56, 2, 'n', 'o', 0, 0), byte(frameHeader), append(header, 0x20, 0x80, 0, 0, 0, 1, 'x', 1, '1'))
	f.Add(byte(frameMethod), frame(basicReturn, 1, 56, 0, 0, 0), byte(frameHeader), append(header, 0xff, 0xff, 200))
	f.Add(byte(frameMethod), frame(confirmSelectOK), byte(frameMethod), frame(confirmSelectOK))
	f.Add(byte(frameMethod), frame(channelClose, 1, 150, 200), byte(frameMethod), frame(channelCloseOK))
	f.Add(byte(frameBody), []byte("x"), byte(frameMethod), []byte{0, 60})
	f.Fuzz(func(t *testing.T, kind1 byte, payload1 []byte, kind2 byte, payload2 []byte) {
		c := testChannel(t, 4)
		publishTo(t, c, "1", "2", "3")
		if c.frame(kind1, payload1) == nil {
			_ = c.frame(kind2, payload2)
		}
		c.end(nil, false)
	})
}
