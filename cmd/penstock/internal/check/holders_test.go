package check_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/cmd/penstock/internal/check"
	"github.com/penstock/penstock/internal/test/testserver"
)

// On a separate server, because holders of vacuum's horizon hold it for all databases: prepared
// transactions, replication slots, a session. Autovacuum is off.
func TestHolders(t *testing.T) {
	server := testserver.StartPostgres(t, "max_prepared_transactions = 5", "wal_level = logical", "autovacuum = off")
	f := fixtureOn(t, server.URL)
	cfg := f.healthy()
	f.exec("vacuum")
	// Some transactions, for ages that are measured in transactions.
	f.exec("create table counter (n int)")
	busy := func() {
		for range 20 {
			f.exec("insert into counter values (1)")
		}
	}
	look := func() check.Report {
		busy()
		return f.checkWith(f.conn, cfg, check.Options{OldTransactions: 10})
	}
	r := look()
	if codes(r) != "autovacuum-off commit-order" {
		t.Errorf("only autovacuum is off:\n%s", text(t, r))
	}
	if found := find(t, r, check.CodeAutovacuumOff); found.Fix[0].SQL != "alter system set autovacuum = on" {
		t.Errorf("%+v", found)
	}

	t.Run("prepared", func(t *testing.T) {
		f := f.in(t)
		f.exec("begin", "insert into counter values (1)", `prepare transaction 'it''s'`)
		if r := f.check(cfg); has(r, check.CodePrepared) {
			t.Errorf("it is young:\n%s", text(t, r))
		}
		found := find(t, look(), check.CodePrepared)
		same(t, "the statement", found.Fix[0].SQL, "rollback prepared 'it''s'")
		f.exec(found.Fix[0].SQL)
		if r := look(); has(r, check.CodePrepared) {
			t.Errorf("after its end:\n%s", text(t, r))
		}
	})

	t.Run("slot", func(t *testing.T) {
		f := f.in(t)
		f.exec("select pg_create_logical_replication_slot('debezium', 'pgoutput')")
		found := find(t, look(), check.CodeReplicationSlot)
		if found.Severity != check.Warning || !strings.Contains(found.Title, `no process reads the replication slot "debezium"`) || !strings.Contains(found.Detail, "catalogue") {
			t.Errorf("%+v", found)
		}
		if found := find(t, f.check(cfg), check.CodeReplicationSlot); found.Severity != check.Note {
			t.Errorf("it is young: %+v", found)
		}
		f.exec(found.Fix[0].SQL)
		if r := look(); has(r, check.CodeReplicationSlot) {
			t.Errorf("without the slot:\n%s", text(t, r))
		}
	})

	t.Run("session", func(t *testing.T) {
		f := f.in(t)
		pinned := f.pin()
		found := find(t, look(), check.CodeOldSnapshot)
		if !strings.Contains(found.Title, `"postgres"`) {
			t.Errorf("%+v", found)
		}
		f.must(pinned.Rollback(f.ctx))
		if r := look(); has(r, check.CodeOldSnapshot) {
			t.Errorf("after its end:\n%s", text(t, r))
		}
	})
}

// A query on a standby that reports its snapshot holds back vacuum on the primary.
func TestStandby(t *testing.T) {
	server := testserver.StartPostgres(t)
	if _, err := os.Stat(filepath.Join(server.Bin, "pg_basebackup")); err != nil {
		t.Skip("this build of PostgreSQL comes without pg_basebackup, which makes a standby")
	}
	f := fixtureOn(t, server.URL)
	cfg := f.healthy()
	standby, err := server.NewStandby()
	f.must(err)
	t.Cleanup(func() { _ = standby.Close() })
	f.exec("alter system set synchronous_standby_names = ''", "select pg_reload_conf()", // commits need not wait here
		"create table counter (n int)")
	on := f.connect(standby.URL)
	for _, sql := range []string{"alter system set hot_standby_feedback = on", "alter system set wal_receiver_status_interval = 1", "select pg_reload_conf()"} {
		_, err = on.Exec(f.ctx, sql)
		f.must(err)
	}
	recent := check.Options{OldTransactions: 10}
	present := func() {
		f.Helper()
		f.eventually("the standby tells of the present", "select exists (select from pg_stat_replication where age(backend_xmin) < 10)")
		if r := f.checkWith(f.conn, cfg, recent); has(r, check.CodeStandby) {
			t.Errorf("nobody reads there:\n%s", text(t, r))
		}
	}
	present()
	tx, err := on.BeginTx(f.ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	f.must(err)
	_, err = tx.Exec(f.ctx, "select 1")
	f.must(err)
	for range 20 {
		f.exec("insert into counter values (1)")
	}
	var before string
	f.must(f.conn.QueryRow(f.ctx, "select reply_time::text from pg_stat_replication").Scan(&before))
	f.eventually("the standby has replied since", "select reply_time > '"+before+"' from pg_stat_replication")
	find(t, f.checkWith(f.conn, cfg, recent), check.CodeStandby)
	f.must(tx.Rollback(f.ctx))
	present()
}

// If the server records commit timestamps, the check reports how late rows are.
func TestLateness(t *testing.T) {
	server := testserver.StartPostgres(t, "track_commit_timestamp = on")
	f := fixtureOn(t, server.URL)
	cfg := f.healthy() // its rows were written long after their times
	f.exec("delete from outbox")
	f.exec("insert into outbox (topic) values ('a')", "insert into outbox (topic) values ('b')")
	found := find(t, f.check(cfg), check.CodeCommitOrder)
	if found.Severity != check.Note || found.Evidence.Figures[0].Value != 2 || found.Evidence.Figures[1].Value != 0 {
		t.Errorf("in order: %+v", found)
	}
	// A transaction that began before the others and commits after them.
	f.exec("insert into outbox (topic, at) values ('c', now() - interval '1 minute 5 seconds')")
	found = find(t, f.check(cfg), check.CodeCommitOrder)
	if found.Severity != check.Warning || found.Evidence.Figures[1].Value != 1 || found.Evidence.Figures[2].Value < 65 {
		t.Errorf("one is late: %+v", found)
	}
	cfg.Margin = 10 * time.Minute
	if found = find(t, f.check(cfg), check.CodeCommitOrder); found.Severity != check.Note {
		t.Errorf("within a longer margin: %+v", found)
	}
	// For numbers the check can only report that they are out of order.
	cfg.Columns.Order = []string{"id"}
	f.exec("insert into outbox (id, topic) overriding system value values (1, 'd')")
	if found = find(t, f.check(cfg), check.CodeCommitOrder); found.Evidence.Figures[1].Value != 1 || len(found.Evidence.Figures) != 2 {
		t.Errorf("by number: %+v", found)
	}
}
