package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/store/postgres"
)

// A session whose snapshot is open is told with its process, the oldest of several, and not once it has ended.
func TestVacuumPins(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	session := func() *admin.VacuumPin {
		pins, err := f.store.VacuumPins(f.Ctx)
		f.Must(err)
		for i := range pins {
			if pins[i].Kind == admin.PinnedBySession {
				return &pins[i]
			}
		}
		return nil
	}
	conn := f.Connect()
	var pid int
	f.Must(conn.QueryRow(f.Ctx, "select pg_backend_pid()").Scan(&pid))
	_, err := conn.Exec(f.Ctx, "begin isolation level repeatable read; select 1; select pg_sleep(0.01)")
	f.Must(err)
	for range 3 {
		f.Exec("create temporary table penstock_test_pin (); drop table penstock_test_pin")
	}
	pin := session()
	if pin == nil || !strings.HasPrefix(pin.Who, fmt.Sprint(pid)) || pin.Age < 10*time.Millisecond || pin.Transactions < 3 {
		t.Errorf("session %d holds a snapshot, and is told as %+v", pid, pin)
	}
	_, err = conn.Exec(f.Ctx, "rollback")
	f.Must(err)
	if pin := session(); pin != nil && strings.HasPrefix(pin.Who, fmt.Sprint(pid)) {
		t.Errorf("it has ended, and is told as %+v", pin)
	}
}

// stuck is a context with a deadline at which nothing happens here: what ends then, the server has ended.
type stuck struct {
	context.Context
	end time.Time
}

func (s stuck) Deadline() (time.Time, bool) { return s.end, true }

func TestTheServerEndsAStatusThatTakesTooLong(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Must(f.store.CreateQueue(f.Ctx, "mails", penstock.FIFO))
	f.subscribe()
	conn := f.Connect()
	for table, read := range map[string]func(context.Context) error{
		"penstock._dead_letter": func(ctx context.Context) error { _, err := f.store.Status(ctx); return err },
		"penstock._dead_job":    func(ctx context.Context) error { _, err := f.store.QueueStatus(ctx); return err },
	} {
		_, err := conn.Exec(f.Ctx, "begin; lock table "+table+" in access exclusive mode")
		f.Must(err)
		if err := read(stuck{f.Ctx, time.Now().Add(200 * time.Millisecond)}); err == nil || !strings.Contains(err.Error(), "57014") {
			t.Errorf("%s is locked, and: %v", table, err)
		}
		_, err = conn.Exec(f.Ctx, "rollback")
		f.Must(err)
	}
}
