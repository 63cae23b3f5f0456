package portable_test

import (
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/portable"
)

// Of what a standby lacks that is promoted, no number of a lease comes again: who comes late with it ends no other's job.
func TestLeasesOfALostPrimary(t *testing.T) {
	t.Parallel()
	if engine(t, testserver.PostgresURL(t)) != "PostgreSQL" {
		t.Skip("starts PostgreSQL")
	}
	primary := testserver.StartPostgres(t)
	u, err := url.Parse(primary.URL)
	if err != nil {
		t.Fatal(err)
	}
	way := tcpproxy.New(t, u.Host)
	before := openStore(t, primary.URL, portable.Options{})
	if err := before.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := before.CreateQueue(t.Context(), "jobs", penstock.FIFO); err != nil {
		t.Fatal(err)
	}
	const n = 100 // a sequence's numbers are logged 32 ahead
	if _, err := before.Queue("jobs").Enqueue(t.Context(), make([]penstock.NewJob, n)...); err != nil {
		t.Fatal(err)
	}
	standby, err := primary.NewAsyncStandby(way.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Close() })
	claim := func(s *portable.Store) (leases []int64) {
		t.Helper()
		jobs, err := s.Queue("jobs").Claim(t.Context(), driver.Claim{Jobs: n, Lease: time.Hour})
		if err != nil || len(jobs) != n {
			t.Fatalf("claimed %d jobs, %v, want %d", len(jobs), err, n)
		}
		for _, j := range jobs {
			leases = append(leases, j.Lease)
		}
		return leases
	}
	way.Refuse()
	lost := claim(before)
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	after := openStore(t, standby.URL, portable.Options{})
	again := claim(after)
	ended, err := after.Queue("jobs").Ack(t.Context(), lost...)
	if err != nil || len(ended) > 0 {
		t.Errorf("who lost them ended %d jobs of others, %v", len(ended), err)
	}
	if held, err := after.Queue("jobs").Ack(t.Context(), again...); err != nil || !slices.Equal(slices.Sorted(slices.Values(held)), slices.Sorted(slices.Values(again))) {
		t.Errorf("ended %d of %d jobs, %v", len(held), n, err)
	}
}
