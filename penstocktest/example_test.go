package penstocktest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/penstocktest"
	"github.com/penstock/penstock/work"
)

// A test of a handler runs one job now, on any store. SQLite in a file of t.TempDir() needs no server.
func ExampleRunOne() {
	_ = func(t *testing.T, emails driver.Queue) { // TestMails
		_, err := emails.Enqueue(t.Context(), penstock.NewJob{Key: "ann", Payload: []byte("nobody@")})
		if err != nil {
			t.Fatal(err)
		}
		job, how := penstocktest.RunOne(t, emails, func(context.Context, penstock.Job) error {
			return penstock.Permanent(errors.New("no such address")) // the handler under test
		})
		if how != work.Dead {
			t.Errorf("the job of %s ended with %v, want a dead letter", job.Key, how)
		}
	}
}

// A test looks for the jobs that the program has enqueued within its transaction.
func ExampleRequireEnqueued() {
	_ = func(t *testing.T, tx pgx.Tx) { // TestSignUp
		// signUp(tx, "ann") goes here.
		job := penstocktest.RequireEnqueued(t, tx, "emails", "welcome", "ann")
		if string(job.Payload) != `{"to": "ann"}` || time.Until(job.NotBefore) < time.Hour {
			t.Errorf("the job is %s, not before %s", job.Payload, job.NotBefore)
		}
	}
}

// A test of a producer looks for published messages within the producer's transaction.
func ExampleRequirePublished() {
	_ = func(t *testing.T, tx pgx.Tx) { // TestPlaceOrder
		// placeOrder(tx, "ann") goes here.
		m := penstocktest.RequirePublished(t, tx, "orders", "order.placed", "ann")
		if string(m.Payload) != `{"total": 10}` {
			t.Errorf("the message says %s", m.Payload)
		}
	}
}
