package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock/internal/retry"
)

func TestReasons(t *testing.T) {
	for text, want := range map[string]struct {
		err    error
		reason retry.Reason
	}{
		"nothing":             {nil, retry.None},
		"serialize":           {&pgconn.PgError{Code: "40001", Message: "could not serialize access due to concurrent update"}, retry.Serialization},
		"restart read":        {fmt.Errorf("fetch: %w", &pgconn.PgError{Code: "40001", Message: "Restart read required at: read point"}), retry.Serialization},
		"deadlock":            {&pgconn.PgError{Code: "40P01"}, retry.Deadlock},
		"expired":             {&pgconn.PgError{Code: "XX000", Message: "Current transaction is expired or aborted"}, retry.Expired},
		"left idle":           {&pgconn.PgError{Code: "25P03"}, retry.Expired},
		"expired, 2025":       {&pgconn.PgError{Code: "YB001", Message: "current transaction is expired or aborted"}, retry.Expired},
		"restart, cockroach":  {&pgconn.PgError{Code: "40001", Message: "restart transaction: TransactionRetryWithProtoRefreshError: WriteTooOldError"}, retry.Serialization},
		"result is ambiguous": {&pgconn.PgError{Code: "40003", Message: "result is ambiguous"}, retry.None},
		"an answer lost":      {errors.New("unexpected EOF"), retry.None},
		"unique violation":    {&pgconn.PgError{Code: "23505"}, retry.None},
	} {
		if got := retry.Of(want.err); got != want.reason {
			t.Errorf("%s: reason %d, want %d", text, got, want.reason)
		}
	}
}

func TestDo(t *testing.T) {
	var c retry.Counter
	again := &pgconn.PgError{Code: "40P01"}
	calls := 0
	if err := c.Do(t.Context(), func() error {
		if calls++; calls < 4 {
			return again
		}
		return nil
	}); err != nil || calls != 4 || c[retry.Deadlock].Load() != 3 {
		t.Errorf("%v after %d calls, counted %d", err, calls, c[retry.Deadlock].Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Do(ctx, func() error { return again }); !errors.Is(err, again) {
		t.Errorf("after the context's end: %v", err)
	}
}

// The label of each reason is one of the metric's.
func TestCounts(t *testing.T) {
	var c retry.Counter
	c.Looked()
	calls := 0
	if err := c.Do(t.Context(), func() error {
		if calls++; calls == 1 {
			return &pgconn.PgError{Code: "40001"}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{"serialization": 1, "deadlock": 0, "expired": 0, "unknown": 1}
	if got := c.Counts(); !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// Errors of two statements that define the same thing at once, and errors that are other mistakes.
func TestCollided(t *testing.T) {
	for code, want := range map[string]bool{"23505": true, "42P07": true, "XX000": true, "40001": true, "42501": false, "42601": false} {
		if got := retry.Collided(&pgconn.PgError{Code: code}); got != want {
			t.Errorf("%s: %v", code, got)
		}
	}
	for number, want := range map[uint16]bool{1050: true, 1061: true, 1062: true, 1020: true, 1205: true, 1213: true, 1064: false, 1142: false} {
		if got := retry.Collided(&mysql.MySQLError{Number: number}); got != want {
			t.Errorf("%d: %v", number, got)
		}
	}
	if retry.Collided(errors.New("unexpected EOF")) {
		t.Error("a lost connection is no collision")
	}
}

func TestFew(t *testing.T) {
	calls := 0
	again := &pgconn.PgError{Code: "40001"}
	if err := retry.Few(t.Context(), func() error { calls++; return again }); !errors.Is(err, again) || calls != 7 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// Errors after which the result is unknown.
func TestLost(t *testing.T) {
	for text, want := range map[string]struct {
		err  error
		lost bool
	}{
		"nothing":             {nil, false},
		"an answer lost":      {fmt.Errorf("publish: %w", io.ErrUnexpectedEOF), true},
		"reset":               {&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, true},
		"nobody there":        {&net.OpError{Op: "dial", Err: errors.New("connection refused")}, false},
		"shut down":           {&pgconn.PgError{Code: "57P01"}, true},
		"result is ambiguous": {&pgconn.PgError{Code: "40003"}, true},
		"serialize":           {&pgconn.PgError{Code: "40001"}, false},
		"MariaDB's kill":      {&mysql.MySQLError{Number: 1927}, true},
		"MySQL's client":      {mysql.ErrInvalidConn, true},
		"a duplicate":         {&mysql.MySQLError{Number: 1062}, false},
		"the caller's end":    {context.Canceled, false},
		"a mistake":           {errors.New("no such outbox"), false},
	} {
		if got := retry.Lost(want.err); got != want.lost {
			t.Errorf("%s: %v, want %v", text, got, want.lost)
		}
	}
}

// If the connection of a transaction was lost, it runs again with another number, but only if it has
// not happened.
func TestOnce(t *testing.T) {
	var c retry.Counter
	var numbers, looked []int64
	err := c.Once(t.Context(), func(number int64) error {
		numbers = append(numbers, number)
		return io.ErrUnexpectedEOF
	}, func(_ context.Context, number int64) (bool, error) {
		looked = append(looked, number)
		if len(looked) == 2 {
			return false, io.ErrUnexpectedEOF // it is asked again
		}
		return len(looked) == 4, nil
	})
	if err != nil || len(numbers) != 3 || numbers[0] == numbers[1] || looked[1] != looked[2] || looked[0] != numbers[0] || looked[3] != numbers[2] || c[retry.Unknown].Load() != 4 {
		t.Errorf("%v after %d, looked up %d", err, numbers, looked)
	}
	closed := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	answers := []error{io.ErrUnexpectedEOF, closed, closed, nil, closed}
	next := func(int64) error {
		err := answers[0]
		answers = answers[1:]
		return err
	}
	not := func(context.Context, int64) (bool, error) { return false, nil }
	if err := c.Once(t.Context(), next, not); err != nil || len(answers) != 1 {
		t.Errorf("a server that starts again is not waited for: %v, then %v", err, answers)
	}
	if err := c.Once(t.Context(), next, not); !errors.Is(err, closed) {
		t.Errorf("%v, want that nobody is there", err)
	}
	refused := errors.New("no such outbox")
	if err := c.Once(t.Context(), func(int64) error { return refused }, nil); !errors.Is(err, refused) {
		t.Errorf("%v, want what was refused", err)
	}
}
