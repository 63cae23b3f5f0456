package mysql_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/testserver"
)

// What one Settle has to write may be more than the server takes at once.
func TestSettleOfManyRefusals(t *testing.T) {
	t.Parallel()
	s := migrated(t, testserver.MariaDBDatabase(t))
	src := reader(t, s, "orders")
	const n = 3000
	long := strings.Repeat(`'\`, 400)
	msgs := make([]penstock.Message, n)
	for i := range msgs {
		msgs[i] = penstock.Message{Key: fmt.Sprint(i, long), Payload: []byte("{}")}
	}
	if err := s.Publish(t.Context(), "orders", msgs...); err != nil {
		t.Fatal(err)
	}
	var held int
	for _, outcome := range []driver.Outcome{driver.Parked, driver.Dead, driver.Delivered} {
		b := fetch(t, src, n)
		if len(b.Messages) != n {
			t.Fatalf("fetched %d of %d", len(b.Messages), n)
		}
		verdicts := make([]driver.Verdict, n)
		for i := range verdicts {
			verdicts[i] = driver.Verdict{Outcome: outcome, Hold: outcome == driver.Dead}
			if outcome != driver.Delivered {
				verdicts[i].Failures = []penstock.Failure{{At: time.Now(), Err: strings.Repeat(long, 3)}}
			}
		}
		if err := storetest.Settle(t.Context(), src, driver.Settled{Batch: b, Verdicts: verdicts}); err != nil {
			t.Fatal(err)
		}
		if outcome == driver.Dead {
			var err error
			if held, err = s.RetryDeadLetters(t.Context(), admin.DeadLetterQuery{Outbox: "orders", Subscription: "s"}); err != nil || held != n {
				t.Fatalf("%d dead letters: %v", held, err)
			}
		}
	}
	if b := fetch(t, src, n); len(b.Messages) != 0 {
		t.Fatalf("%d are left", len(b.Messages))
	}
}

// A message that the server does not take is refused with the next step, and alone.
func TestMessageLargerThanAPacket(t *testing.T) {
	t.Parallel()
	s := migrated(t, testserver.MariaDBDatabase(t))
	src := reader(t, s, "orders")
	large := penstock.Message{Payload: bytes.Repeat([]byte("'"), 15<<20)}
	if err := s.Publish(t.Context(), "orders", large); err != nil {
		t.Fatalf("15 MiB, of the 16 that the server takes: %v", err)
	}
	larger := penstock.Message{Payload: make([]byte, 17<<20)}
	var hinted *penstock.HintError
	if err := s.Publish(t.Context(), "orders", penstock.Message{}, larger); !errors.As(err, &hinted) || !strings.Contains(hinted.Hint, "max_allowed_packet") {
		t.Fatalf("got %v", err)
	}
	many := make([]penstock.Message, 20)
	for i := range many {
		many[i].Payload = make([]byte, 1<<20)
	}
	if err := s.Publish(t.Context(), "orders", many...); err != nil {
		t.Fatalf("20 of 1 MiB: %v", err)
	}
	if b := fetch(t, src, 100); len(b.Messages) != 21 || !bytes.Equal(b.Messages[0].Payload, large.Payload) {
		t.Fatalf("fetched %d", len(b.Messages))
	}
}
