package rabbitmq

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Written bytes arrive, in order and once, held back or not.
func TestWireDeliversInOrder(t *testing.T) {
	here, there := net.Pipe()
	w := newWire(here)
	var want []byte
	go func() {
		for i := range 5000 {
			if i%7 == 0 {
				w.hold()
			}
			if n, err := w.Write(bytes.Repeat([]byte{byte(i)}, i%50)); n != i%50 || err != nil {
				t.Error(n, err)
			}
			if i%7 == 3 {
				w.release()
			}
		}
		w.release()
	}()
	for i := range 5000 {
		want = append(want, bytes.Repeat([]byte{byte(i)}, i%50)...)
	}
	got := make([]byte, len(want))
	if n, err := io.ReadFull(there, got); err != nil {
		t.Fatalf("%d of %d bytes: %v", n, len(want), err)
	}
	if !bytes.Equal(got, want) {
		t.Error("other bytes arrived")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if n, _ := there.Read(got); n > 0 {
		t.Errorf("and then %d more", n)
	}
}

// The other end does not read. Writing does not block; asking for room does, and ends with its
// context, when there is room, or when the connection is closed.
func TestWireRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, there := fullWire(t)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := w.await(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("the buffer is full, await says %v", err)
		}
		go func() { _, _ = io.Copy(io.Discard, there) }()
		if err := w.await(context.Background()); err != nil {
			t.Fatal(err)
		}

		w, _ = fullWire(t)
		var waiting sync.WaitGroup
		for range 3 {
			waiting.Go(func() {
				if err := w.await(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		_ = w.Close()
		waiting.Wait()
	})
}

// fullWire is a wire without room, whose other end does not read; for a test in
// virtual time.
func fullWire(t *testing.T) (w *wire, there net.Conn) {
	t.Helper()
	here, there := net.Pipe()
	w = newWire(here)
	t.Cleanup(func() { _ = w.Close() })
	_, _ = w.Write(make([]byte, wireLimit))
	synctest.Wait() // the writing goroutine has taken it and hangs
	_, _ = w.Write(make([]byte, wireLimit))
	return w, there
}

// Every later write returns the first failure, and the connection is closed, which its reader
// notices.
func TestWireFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		w := newWire(here)
		_ = there.Close()
		_, _ = w.Write([]byte("x"))
		if _, err := here.Read(make([]byte, 1)); err == nil {
			t.Error("the connection is still open")
		}
		synctest.Wait()
		if _, err := w.Write([]byte("y")); !errors.Is(err, io.ErrClosedPipe) {
			t.Fatalf("%v, want what broke the connection", err)
		}
	})
}
