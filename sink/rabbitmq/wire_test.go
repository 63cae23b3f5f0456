package rabbitmq

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// What is written arrives, in order and once, held back or not.
func TestWireDeliversInOrder(t *testing.T) {
	here, there := net.Pipe()
	w := newWire(here)
	var want bytes.Buffer
	got := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(there)
		got <- b
	}()
	for i := range 5000 {
		if i%7 == 0 {
			w.hold()
		}
		p := bytes.Repeat([]byte{byte(i)}, i%50)
		want.Write(p)
		if n, err := w.Write(p); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
		if i%7 == 3 {
			w.release()
		}
	}
	w.release()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	w.mu.Lock()
	for (len(w.filling) > 0) && ctx.Err() == nil {
		w.mu.Unlock()
		time.Sleep(time.Millisecond)
		w.mu.Lock()
	}
	w.mu.Unlock()
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if b := <-got; !bytes.Equal(b, want.Bytes()) {
		t.Errorf("%d bytes arrived, want %d, or they differ", len(b), want.Len())
	}
}

// Nobody reads: writing does not block, asking for room does, and ends with its
// context, when there is room, or when the connection is closed.
func TestWireRoom(t *testing.T) {
	here, there := net.Pipe()
	w := newWire(here)
	for range 3 { // one of them is in the writing goroutine's hands
		if _, err := w.Write(make([]byte, wireLimit)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := w.await(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the buffer is full, await says %v", err)
	}
	go func() { _, _ = io.Copy(io.Discard, there) }()
	if err := w.await(context.Background()); err != nil {
		t.Fatal(err)
	}

	here, _ = net.Pipe()
	w = newWire(here)
	for range 3 {
		_, _ = w.Write(make([]byte, wireLimit))
	}
	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() {
			if err := w.await(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	_ = w.Close()
	waiting.Wait()
}

// The first failure is what every later write says, and the connection is
// closed so that its reader notices.
func TestWireFails(t *testing.T) {
	here, there := net.Pipe()
	w := newWire(here)
	_ = there.Close()
	_, _ = w.Write([]byte("x"))
	if _, err := here.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
	for {
		_, err := w.Write([]byte("y"))
		if errors.Is(err, io.ErrClosedPipe) {
			break
		}
		if err != nil {
			t.Fatalf("%v, want what broke the connection", err)
		}
		time.Sleep(time.Millisecond)
	}
}
