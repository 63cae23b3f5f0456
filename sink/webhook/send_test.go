package webhook

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// busy is an endpoint that takes 20 ms, of virtual time, and notes how many requests it had at
// once.
type busy struct {
	mu        sync.Mutex
	now, most int
	keys      map[string]int
	order     map[string][]string
}

func (b *busy) answer(req *http.Request, out io.Writer) {
	key, id := req.Header.Get(HeaderKey), req.Header.Get(HeaderIdempotencyKey)
	b.mu.Lock()
	if b.keys == nil {
		b.keys, b.order = map[string]int{}, map[string][]string{}
	}
	b.now++
	b.most = max(b.most, b.now)
	b.keys[key]++
	if key != "" && b.keys[key] > 1 {
		id += " beside another one"
	}
	b.order[key] = append(b.order[key], id)
	b.mu.Unlock()
	time.Sleep(20 * time.Millisecond)
	b.mu.Lock()
	b.now--
	b.keys[key]--
	b.mu.Unlock()
	status := 204
	if s := req.Header.Get("Answer"); s != "" {
		_, _ = fmt.Sscan(s, &status)
	}
	reply(status)(req, out)
}

// Messages of different keys, or without a key, are sent concurrently; those of one key one after
// another.
func TestConcurrency(t *testing.T) {
	for _, c := range []struct {
		name               string
		keys, messages     int
		concurrency, sends int
		most               int
		took               time.Duration
	}{
		{"unordered", 0, 100, 256, 1, 100, 20 * time.Millisecond},
		{"unordered, bounded", 0, 100, 30, 1, 30, 80 * time.Millisecond},
		{"200 keys", 200, 400, 256, 1, 200, 40 * time.Millisecond},
		{"200 keys, bounded", 200, 400, 50, 1, 50, 160 * time.Millisecond},
		{"one key", 1, 10, 256, 1, 1, 200 * time.Millisecond},
		{"bounded over all Sends", 0, 100, 30, 4, 30, 280 * time.Millisecond},
		{"one at a time", 5, 10, 1, 1, 1, 200 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b busy
				s := piped(t, Config{Concurrency: c.concurrency}, answering(b.answer))
				var sends sync.WaitGroup
				began := time.Now()
				for n := range c.sends {
					msgs := make([]penstock.Message, c.messages)
					for i := range msgs {
						msgs[i] = message(fmt.Sprintf("%d.%03d", n, i), "")
						if c.keys > 0 {
							msgs[i].Key = fmt.Sprintf("%d.%d", n, i%c.keys)
						}
					}
					sends.Go(func() {
						if errs := s.Send(context.Background(), msgs); errs != nil {
							t.Error(errs)
						}
					})
				}
				sends.Wait()
				if took := time.Since(began); took != c.took || b.most != c.most {
					t.Errorf("it took %v with at most %d at once, want %v and %d", took, b.most, c.took, c.most)
				}
				for key, ids := range b.order {
					if key != "" && (!slices.IsSorted(ids) || strings.Contains(fmt.Sprint(ids), "beside")) {
						t.Errorf("key %s got %q", key, ids)
					}
				}
			})
		})
	}
}

// After a message that is not delivered, nothing more of its key is sent. The relay gets an error
// for the others that costs nothing.
func TestNothingIsSentBehindAFailure(t *testing.T) {
	for _, c := range []struct{ answer, want, behind string }{
		{"500", "retry", "retry"},
		{"422", "permanent", "retry"},
		{"unsendable", "permanent", "retry"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var b busy
			s := piped(t, Config{}, answering(b.answer))
			msgs := []penstock.Message{message("a1", "a"), message("b1", "b"), message("a2", "a"), message("u1", ""), message("a3", "a"), message("a4", "a"), message("b2", "b"), message("u2", "")}
			msgs[2].Headers = map[string]string{"answer": c.answer}
			if c.want == "permanent" && c.answer == "unsendable" {
				msgs[2].Headers = map[string]string{"a b": "c"}
			}
			want := map[string]string{"a2": c.want, "a3": c.behind, "a4": c.behind}
			errs := s.Send(context.Background(), msgs)
			for i, err := range errs {
				if w := want[msgs[i].ID]; w != "" {
					wantKind(t, msgs[i].ID, err, w)
				} else {
					wantKind(t, msgs[i].ID, err, "delivered")
				}
			}
			if got := b.order["a"]; slices.Contains(got, "a3") || slices.Contains(got, "a4") {
				t.Errorf("key a got %q", got)
			}
		})
	}
	// An endpoint that is away is also away for those behind.
	synctest.Test(t, func(t *testing.T) {
		s := piped(t, Config{}, answering(func(_ *http.Request, out io.Writer) { untilClosed(out) }))
		for _, err := range s.Send(context.Background(), []penstock.Message{message("1", "a"), message("2", "a"), message("3", "b")}) {
			wantKind(t, "away", err, "unavailable")
		}
	})
}

// The sink leaves it to the relay to send one message of a key at a time.
func TestIsNoInOrderSink(t *testing.T) {
	var s any = new(Sink)
	if _, ok := s.(driver.InOrderSink); ok {
		t.Error("the relay would hand over whole lines of one key, and 200 keys would share a Send or two: see DESIGN.md")
	}
}

// A line per key, in order, and one per message without a key.
func TestLines(t *testing.T) {
	msgs := []penstock.Message{{Key: "a"}, {}, {Key: "b"}, {Key: "a"}, {}, {Key: "a"}, {Key: "b"}}
	if lines := linesOf(msgs); !reflect.DeepEqual(lines, [][]int{{0, 3, 5}, {1}, {2, 6}, {4}}) {
		t.Error(lines)
	}
}
