package testserver

import (
	"errors"
	"net/url"
	"testing"

	"github.com/penstock/penstock/internal/test/tcpproxy"
)

// Commits that a primary has acknowledged are on its standby too, however the primary ends.
func TestStandby(t *testing.T) {
	primary := StartPostgres(t)
	standby, err := primary.NewStandby()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := standby.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := execute(primary.URL, "create table t as select 1"); err != nil {
		t.Fatal(err)
	}
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := execute(standby.URL, "insert into t values (2)"); err == nil {
		t.Error("a standby takes writes")
	}
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	if err := execute(standby.URL, "insert into t values (2)"); err != nil {
		t.Error(err)
	}
}

// Commits made while an asynchronous standby heard nothing are gone with its promotion, and earlier
// ones are there.
func TestAsyncStandby(t *testing.T) {
	t.Parallel()
	primary := StartPostgres(t)
	u, err := url.Parse(primary.URL)
	if err != nil {
		t.Fatal(err)
	}
	way := tcpproxy.New(t, u.Host)
	if err := execute(primary.URL, "create table t as select 1"); err != nil {
		t.Fatal(err)
	}
	standby, err := primary.NewAsyncStandby(way.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := standby.Close(); err != nil {
			t.Error(err)
		}
	}()
	way.Refuse()
	if err := execute(primary.URL, "insert into t values (2)"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(primary.Kill(), standby.Promote()); err != nil {
		t.Fatal(err)
	}
	if got := query[int](t, standby.URL, "select count(*) from t"); got != 1 {
		t.Errorf("%d rows, want the 1 of before", got)
	}
}
