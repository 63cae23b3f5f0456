package adopt_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres/adopt"
)

// wantSink reads the status of the table's subscription.
func (f *fixture) wantSink(t *adopt.Table, when string, down time.Time, why string) {
	f.Helper()
	got, err := t.Status(f.Ctx)
	f.Must(err)
	if !got.SinkDown.Equal(down) || got.SinkError != why {
		f.Errorf("%s: down since %v (%q), want %v (%q)", when, got.SinkDown, got.SinkError, down, why)
	}
}

func (f *fixture) reportSink(src driver.Source, down time.Time, why string) {
	f.Helper()
	f.Must(src.(driver.SinkReporter).ReportSink(f.Ctx, down, why))
}

// The status shows how the sink is, as the holder of the lease reported it, and no holder before.
func TestStatusShowsTheSink(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	table := f.open(keyedConfig())
	down := time.Now().Add(-time.Minute).Truncate(time.Millisecond).UTC()
	first := f.subscribe(table)
	f.wantSink(table, "at first", time.Time{}, "")
	long := strings.Repeat("ü", driver.MaxSinkErrorBytes/2)
	f.reportSink(first, down, long)
	f.wantSink(table, "down", down, long)
	f.Must(first.Renew(f.Ctx))
	f.wantSink(table, "renewed", down, long)
	f.reportSink(first, time.Time{}, "")
	f.wantSink(table, "back", time.Time{}, "")
	f.reportSink(first, down, "no route")
	f.Must(first.Close(f.Ctx))
	f.wantSink(table, "nobody has the lease", time.Time{}, "")
	second := f.subscribe(table)
	f.wantSink(table, "the next holder has said nothing", time.Time{}, "")
	f.reportSink(second, down, "again")
	f.wantSink(table, "the next holder", down, "again")
	if err := first.(driver.SinkReporter).ReportSink(f.Ctx, down, "late"); !errors.Is(err, penstock.ErrClosed) {
		t.Errorf("a source that is closed reports: got %v, want ErrClosed", err)
	}
	f.wantSink(table, "after that", down, "again")
}

// Each of several workers has its own sink: one that its worker cannot reach is shown until it can be
// reached.
func TestStatusShowsTheSinksOfWorkers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	c := keyedConfig()
	c.Workers = 2
	table := f.open(c)
	one, two := f.subscribe(table), f.subscribe(table)
	down := time.Now().Add(-time.Minute).Truncate(time.Millisecond).UTC()
	f.reportSink(one, down.Add(time.Second), "no route")
	f.wantSink(table, "one", down.Add(time.Second), "no route")
	f.reportSink(two, down, "refused")
	f.Must(one.Renew(f.Ctx))
	f.wantSink(table, "both", down, "refused")
	f.reportSink(two, time.Time{}, "")
	f.wantSink(table, "the other is back", down.Add(time.Second), "no route")
	f.Must(one.Close(f.Ctx))
	f.wantSink(table, "it has gone", time.Time{}, "")
}

// The relay tells an adopted table, as it tells an outbox.
func TestRelayReportsTheSink(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	f.insert("k", "a")
	table := f.open(keyedConfig())
	var up atomic.Bool
	sink := &collector{refuse: func(*penstock.Message) error {
		if up.Load() {
			return nil
		}
		return penstock.Unavailable(errors.New("no route to host"))
	}}
	f.relay(table, sink, nil)
	status := func() admin.SubscriptionStatus {
		s, err := table.Status(f.Ctx)
		f.Must(err)
		return s
	}
	f.Eventually("the status tells that the sink takes nothing", func() bool {
		s := status()
		return !s.SinkDown.IsZero() && strings.Contains(s.SinkError, "no route to host")
	})
	up.Store(true)
	f.Eventually("the status tells that the sink is back", func() bool { return sink.count() == 1 && status().SinkDown.IsZero() })
}
