package postgres_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres"
)

// The log has where a new subscription begins, and which relay let the lease end.
func TestLeaseIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f := newFixture(t, postgres.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for _, c := range []struct {
		subscription, holder string
		start                driver.Start
		line                 string
	}{
		{"first", "a", driver.FromBeginning, "begins with the oldest message that is still there"},
		{"later", "a", driver.FromNow, "begins now: it does not get the messages that are there already"},
		{"later", "a", driver.FromNow, ""},
		{"later", "dies", driver.FromNow, ""},
		{"later", "b", driver.FromNow, "the relay before did not give the lease back: it ended\" outbox=orders subscription=later holder=dies until="},
	} {
		log.Reset()
		src, err := driver.Source(nil), penstock.ErrHeld
		for errors.Is(err, penstock.ErrHeld) {
			src, err = f.store.Subscribe(f.Ctx, driver.Subscribe{Outbox: "orders", Subscription: c.subscription, Holder: c.holder, Start: c.start, Lease: time.Second})
		}
		f.Must(err)
		if c.holder == "dies" {
			defer src.Close(f.Ctx)
		} else {
			f.Must(src.Close(f.Ctx))
		}
		if n := strings.Count(log.String(), "level=INFO"); !strings.Contains(log.String(), c.line) || (n == 1) != (c.line != "") {
			t.Errorf("%s of %s has the log %q, want %q", c.subscription, c.holder, &log, c.line)
		}
	}
}
