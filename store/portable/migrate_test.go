package portable_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/portable"
)

// Ten processes make the tables at once. Those of a version of development are refused, and stay as they are.
func TestMigrateFromProcesses(t *testing.T) {
	t.Parallel()
	url := testserver.Database(t, testserver.PostgresURL(t))
	var all sync.WaitGroup
	for range 10 {
		s := openStore(t, url, portable.Options{})
		all.Go(func() {
			if err := s.Migrate(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	exec(t, url, "update penstock_portable.version set version = version - 1")
	if err := openStore(t, url, portable.Options{}).Migrate(t.Context()); !errors.Is(err, penstock.ErrOlderSchema) || !strings.Contains(err.Error(), "before the first release") {
		t.Errorf("got %v", err)
	}
}

// A transaction that is under way and ends later makes the drop of its tables wait, not fail.
func TestDropSchemaInADeadlock(t *testing.T) {
	t.Parallel()
	url := testserver.Database(t, testserver.PostgresURL(t))
	skipPooled(t, url, "other sessions cannot be told apart")
	if e := engine(t, url); e != "PostgreSQL" {
		t.Skip("what is locked in which order is another thing on", e)
	}
	s := openStore(t, url, portable.Options{})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := testserver.DropInDeadlock(t, url, "penstock_portable", func() error { return s.DropSchema(t.Context()) }); err != nil {
		t.Error(err)
	}
	exec(t, url, "create schema penstock_portable") // the name is free
}

// A worker that continues while a newer program migrates the tables gets that error where a statement of it is refused, and from then on.
func TestTablesBecomeNewer(t *testing.T) {
	t.Parallel()
	url := testserver.Database(t, testserver.PostgresURL(t))
	s := openStore(t, url, portable.Options{})
	q := s.Queue("jobs")
	_, err := q.Enqueue(t.Context(), penstock.NewJob{})
	if !errors.Is(err, penstock.ErrNotMigrated) {
		t.Fatal(err)
	}
	if err := errors.Join(s.Migrate(t.Context()), s.CreateQueue(t.Context(), "jobs", penstock.FIFO)); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Enqueue(t.Context(), make([]penstock.NewJob, 3)...); err != nil {
		t.Fatal(err)
	}
	one := driver.Claim{Jobs: 1, Lease: time.Hour}
	jobs, err := q.Claim(t.Context(), one)
	if err != nil || len(jobs) != 1 {
		t.Fatalf("claimed %d jobs, %v", len(jobs), err)
	}
	exec(t, url, "set search_path = penstock_portable; alter table leases rename column worker to holder; insert into version select max(version) + 1 from version")
	for range 2 {
		_, err := q.Claim(t.Context(), one)
		var hinted *penstock.HintError
		if !errors.Is(err, penstock.ErrNewerSchema) || !errors.As(err, &hinted) || !strings.Contains(hinted.Hint, "newer penstock") {
			t.Errorf("claim: got %v, want an error that says to use a newer penstock", err)
		}
	}
	if _, err := q.Ack(t.Context(), jobs[0].Lease); !errors.Is(err, penstock.ErrNewerSchema) {
		t.Errorf("ack: got %v", err)
	}
}
