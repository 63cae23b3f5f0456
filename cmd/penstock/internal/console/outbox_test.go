package console_test

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/store/postgres"
)

// An outbox's page shows which subscriptions keep each sealed segment, and how much is published.
func TestWhoKeepsASegment(t *testing.T) {
	s, err := postgres.Open(t.Context(), postgrestest.Database(t), postgres.Options{Segments: 3, SegmentBytes: 64 << 10})
	must(t, err)
	must(t, s.Migrate(t.Context()))
	t.Cleanup(func() { s.Close() })
	must(t, s.CreateOutbox(t.Context(), "orders"))
	source, err := s.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "billing", Holder: "relay-1"})
	must(t, err)
	must(t, source.Close(t.Context()))
	d := serve(t, s)
	shows := func(path, what string) {
		t.Helper()
		wanted := regexp.MustCompile(what)
		for until := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) { // read again at most once a second
			must(t, s.Publish(t.Context(), "orders", penstock.Message{Topic: "t", Payload: bytes.Repeat([]byte("x"), 50_000)}))
			must(t, s.Maintain(t.Context(), "orders"))
			if _, page := d.ask("r", "GET", path, ""); wanted.Match(page) {
				return
			} else if time.Now().After(until) {
				t.Fatalf("%s does not show %s:\n%s", path, what, page)
			}
		}
	}
	shows("/outboxes/orders", `class="text">subscription billing</td>`)
	shows("/", `data-label="In">[1-9]\d*/s<`)
}

// blind may not read which subscriptions keep segments.
type blind struct{ *postgres.Store }

func (blind) HeldSegments(context.Context) ([]doctor.HeldSegment, error) {
	return nil, errors.New("permission denied for function _segments")
}

// The page names the parts that a role may not read, and shows the rest.
func TestWhoKeepsASegmentIsNotForAll(t *testing.T) {
	s, err := postgres.Open(t.Context(), postgrestest.Database(t), postgres.Options{})
	must(t, err)
	must(t, s.Migrate(t.Context()))
	t.Cleanup(func() { s.Close() })
	fill(t, s)
	if code, page := serve(t, blind{s}).ask("r", "GET", "/outboxes/orders", ""); code != 200 || !strings.Contains(string(page), "permission denied") || !strings.Contains(string(page), "Subscription billing") {
		t.Errorf("%d %s", code, page)
	}
}

// The page shows only known facts about the sink: nothing if no relay runs, and not that all is well while a key is parked. A limit that does not
// exist is left out.
func TestWhatIsSaidOfTheSink(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		fill(t, s)
		shows := func(path, what, not string) {
			t.Helper()
			if _, page := serve(t, s).ask("r", "GET", path, ""); !strings.Contains(string(page), what) || strings.Contains(string(page), not) {
				t.Errorf("%s does not show %q, or shows %q:\n%s", path, what, not, page)
			}
		}
		shows("/outboxes/orders", "not known: no relay runs", "no complaint")
		shows("/queues/mails", "Running", "any number")
		source, err := s.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "billing", Holder: "relay-1"})
		must(t, err)
		shows("/outboxes/orders", "parked keys: 1", "no complaint")
		must(t, source.Close(t.Context()))
	})
}
