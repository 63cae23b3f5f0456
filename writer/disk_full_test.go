package writer_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/writer"
)

// Callers publish until the disk is full. Each gets an error, and exactly the acknowledged messages are delivered. Once there is
// room, the same writer continues.
func TestWriterOnAFullDisk(t *testing.T) {
	t.Parallel()
	url, dir := postgrestest.SmallDisk(t)
	store, err := open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	ballast := ""
	for _, step := range []func() error{
		func() error { return store.Migrate(t.Context()) },
		func() error { return store.CreateOutbox(t.Context(), "orders") },
		func() (err error) { ballast, err = postgrestest.Ballast(dir, "ballast", 4<<20); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	w := writer.New(store, writer.Options{})
	const callers = 16
	var acknowledged [callers]int // of each caller: how many of its first messages
	run := func(next func(caller int, err error) bool) {
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				payload := make([]byte, 4000)
				for {
					for j := range payload {
						payload[j] = byte(rand.Uint32()) // what TOAST cannot compress
					}
					err := w.Publish(t.Context(), "orders", penstock.Message{ID: fmt.Sprintf("%d.%d", i, acknowledged[i]), Payload: payload})
					if err == nil {
						acknowledged[i]++
					}
					if !next(i, err) {
						return
					}
				}
			})
		}
		wg.Wait()
	}
	full := [callers]int{}
	run(func(i int, err error) bool {
		switch pgerror.State(err) {
		case "53100": // disk_full
			full[i]++
		default:
			if err != nil {
				t.Errorf("got %v, want an error that says that the disk is full", err)
				return false
			}
		}
		if acknowledged[i] > 5000 { // in all, three times what fits on the disk
			t.Errorf("caller %d is told of no error", i)
			return false
		}
		return full[i] < 3
	})
	before := w.Stats()
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	again := [callers]int{}
	run(func(i int, err error) bool {
		if err != nil {
			t.Errorf("there is room, and got %v", err)
		}
		again[i]++
		return again[i] < 10
	})
	if err := w.Close(t.Context()); err != nil {
		t.Error(err)
	}
	want, got := 0, delivered(t, store)
	for i, n := range acknowledged {
		for k := range n {
			if id := fmt.Sprintf("%d.%d", i, k); got[id] != 1 {
				t.Errorf("message %s was acknowledged and delivered %d times", id, got[id])
			}
		}
		want += n
	}
	if len(got) != want || want < callers*10 {
		t.Errorf("%d messages were delivered, %d acknowledged", len(got), want)
	}
	if s := w.Stats(); s.Lost != 0 || s.Calls-before.Calls != callers*10 {
		t.Errorf("got %+v", s)
	}
}
