package mysql_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// The grants of docs/reference/engines.md on an adopted table are enough, and an error names each one that is missing. Its names, those of its database and columns too,
// are any text.
func TestAdoptGrants(t *testing.T) {
	t.Parallel()
	of := testserver.MariaDBDatabase(t)
	schema, host := databaseOf(t, of)
	root := application(t, of)
	store := openStore(t, of, mysql.Options{Schema: schema})
	must(t, store.Migrate(t.Context()))
	shop := schema + "-a`b ' é"
	quote := func(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
	table := quote(shop) + "." + quote("let`ters; --")
	exec(t, root, "create database "+quote(shop))
	t.Cleanup(func() { _, _ = root.Exec("drop database " + quote(shop)) })
	exec(t, root, "create table "+table+" (`i\"d` varchar(40) collate utf8mb4_swedish_ci primary key, `or``der` datetime(6) not null default (utc_timestamp(6)), `select` varchar(40), body text, `done at` datetime(6), error varchar(10), key (`or``der`), key (`done at`, `or``der`))")
	open := func(delivered adopted.Delivered, part string, grants string) (*mysql.Adopted, error) {
		user := schema[len(schema)-16:] + part
		exec(t, root, "create user '"+user+"'@'%' identified by 'secret'", "grant select, insert, update, delete on "+schema+".* to '"+user+"'@'%'")
		t.Cleanup(func() { _, _ = root.Exec("drop user '" + user + "'@'%'") })
		if grants != "" {
			exec(t, root, "grant "+grants+" on "+table+" to '"+user+"'@'%'")
		}
		c := mysql.AdoptConfig{Table: `"` + shop + `"."let` + "`" + `ters; --"`, Delivered: delivered,
			Columns: adopted.Columns{ID: `i"d`, Order: []string{"or`der"}, Key: "select", Payload: "body", Error: "error"}}
		if delivered == adopted.Mark {
			c.Columns.ProcessedAt = "done at"
		}
		u := &url.URL{Scheme: "mysql", Host: host, Path: "/", User: url.UserPassword(user, "secret")}
		return mysql.Adopt(u.String(), mysql.Options{Schema: schema}, part, c)
	}
	charsets := map[adopted.Delivered]string{adopted.Mark: "utf8mb4", adopted.Delete: "latin1"}
	for part, delivered := range map[string]adopted.Delivered{"_m": adopted.Mark, "_d": adopted.Delete} {
		exec(t, root, "delete from "+table, "alter table "+table+" modify error varchar(10) character set "+charsets[delivered], "insert into "+table+" (`i\"d`, `select`, body) values ('Ž1', 'Z', 'first'), ('z2', 'Ž', 'second'), ('z3', 'other', 'third')")
		for missing, grants := range map[string]string{"_1": "", "_2": "select"} {
			a, err := open(delivered, part+missing, grants)
			must(t, err)
			src, err := a.Subscribe(t.Context(), driver.Subscribe{Holder: "test"})
			if grants != "" {
				must(t, err)
				err = storetest.Settle(t.Context(), src, driver.Settled{Batch: fetch(t, src, 10)})
			}
			var field *penstock.FieldError
			var hinted *penstock.HintError
			if !errors.As(err, &field) && !errors.As(err, &hinted) || !strings.Contains(err.Error(), "the role may use the table") && !strings.Contains(err.Error(), "grant") {
				t.Errorf("delivered %s, with %q: %v, want what to grant", delivered, grants, err)
			}
			if grants != "" {
				must(t, src.Close(t.Context()), store.DropAdoption(t.Context(), part+missing))
			}
			must(t, a.Close())
		}
		grants := "select, update"
		if delivered == adopted.Delete {
			grants += ", delete"
		}
		a, err := open(delivered, part, grants)
		must(t, err)
		src, err := a.Subscribe(t.Context(), driver.Subscribe{Holder: "test"})
		must(t, err)
		b := fetch(t, src, 10)
		failed := []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "Žluť 😀, refused for long"}}
		if len(b.Messages) != 3 {
			t.Fatalf("fetched %+v", b.Messages)
		}
		must(t, storetest.Settle(t.Context(), src, driver.Settled{Batch: b, Verdicts: []driver.Verdict{{Outcome: driver.Parked, Failures: failed, RetryIn: time.Hour}, {Outcome: driver.Dead, Failures: failed}, {}}}))
		var written string
		must(t, root.QueryRow("select error from "+table+" where body = 'first'").Scan(&written))
		if want := map[string]string{"utf8mb4": "Žluť 😀, re", "latin1": "?lu? ?, re"}[charsets[delivered]]; written != want {
			t.Errorf("the error in the row is %q", written)
		}
		if n, err := a.RetryParked(t.Context()); err != nil || n != 1 {
			t.Errorf("to be tried at once: %d, %v", n, err)
		}
		b = fetch(t, src, 10)
		must(t, src.Renew(t.Context()), src.Settle(t.Context(), b.Number, driver.Settled{Batch: b}))
		if n, err := a.DiscardDeadLetters(t.Context(), admin.DeadLetterQuery{}); err != nil || n != 1 {
			t.Errorf("discarded %d, %v", n, err)
		}
		fetch(t, src, 10)
		var left int
		must(t, root.QueryRow("select count(*) from "+table+" where `done at` is null").Scan(&left), src.Close(t.Context()), a.Close(), store.DropAdoption(t.Context(), part))
		if left != 0 {
			t.Errorf("delivered %s: %d rows are left", delivered, left)
		}
	}
}
