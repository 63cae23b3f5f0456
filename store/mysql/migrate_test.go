package mysql_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// Ten processes make the database and the tables at once. Those of a version of development are refused, and stay as they are.
func TestMigrateFromProcesses(t *testing.T) {
	t.Parallel()
	for _, engine := range engines(t) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			url := testserver.MariaDBDatabase(t)
			schema, _ := databaseOf(t, url)
			exec(t, application(t, url), "drop database "+schema)
			opts := mysql.Options{Schema: schema, Engine: engine}
			var all sync.WaitGroup
			for range 10 {
				s := openStore(t, url[:strings.LastIndex(url, "/")+1], opts)
				all.Go(func() {
					if err := s.Migrate(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			s := openStore(t, url, mysql.Options{Schema: schema})
			must(t, s.CreateOutbox(t.Context(), "orders"), s.CreateQueue(t.Context(), "jobs", penstock.LIFO), s.CreateInbox(t.Context(), "billing", 0))
			exec(t, application(t, url), "update version set version = version - 1")
			if err := openStore(t, url, opts).Migrate(t.Context()); !errors.Is(err, penstock.ErrOlderSchema) || !strings.Contains(err.Error(), "before the first release") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A worker that continues while a newer program migrates the tables gets that error where a statement of it is refused, and from then on.
func TestTablesBecomeNewer(t *testing.T) {
	t.Parallel()
	for _, engine := range engines(t) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			url := testserver.MariaDBDatabase(t)
			app := application(t, url)
			schema, _ := databaseOf(t, url)
			s := openStore(t, url, mysql.Options{Schema: schema, Engine: engine})
			must(t, s.Migrate(t.Context()), s.CreateQueue(t.Context(), "jobs", penstock.FIFO))
			q, one := s.Queue("jobs"), driver.Claim{Jobs: 1, Lease: time.Hour}
			_, err := q.Enqueue(t.Context(), make([]penstock.NewJob, 3)...)
			must(t, err)
			jobs, err := q.Claim(t.Context(), one)
			if err != nil || len(jobs) != 1 {
				t.Fatalf("claimed %d jobs, %v", len(jobs), err)
			}
			exec(t, app, "alter table leases change worker holder varbinary(256) not null", "update version set version = version + 1")
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
		})
	}
}

// Where nothing can be rolled back no promise holds: such an engine is refused, also where it is the server's default. Where names of
// tables are not taken as they are, capitals are refused.
func TestServerOfOtherOptions(t *testing.T) {
	t.Parallel()
	server := testserver.StartMariaDB(t, "--default-storage-engine=MyISAM", "--lower-case-table-names=1", "--loose-innodb-snapshot-isolation=ON") // the default of MariaDB 11.6; MySQL has none
	for _, engine := range []string{"", "MyISAM", "Aria", "MEMORY", "nonsense"} {
		s := openStore(t, server.URL, mysql.Options{Engine: engine})
		var hinted *penstock.HintError
		if err := s.Migrate(t.Context()); !errors.As(err, &hinted) || !strings.Contains(err.Error(), "InnoDB") {
			t.Errorf("engine %q: %v, want an error that names one that can", engine, err)
		}
	}
	s := openStore(t, server.URL, mysql.Options{Engine: "innodb"})
	must(t, s.Migrate(t.Context()), s.CreateOutbox(t.Context(), "orders"))
	// A store that names none later has the engine of the tables.
	other := openStore(t, server.URL, mysql.Options{})
	must(t, other.Migrate(t.Context()), other.CreateOutbox(t.Context(), "letters"), other.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	var field *penstock.FieldError
	for _, err := range []error{other.CreateOutbox(t.Context(), "Orders"), other.CreateQueue(t.Context(), "Jobs", penstock.FIFO)} {
		if !errors.As(err, &field) {
			t.Errorf("got %v, want a FieldError", err)
		}
	}
	app := application(t, strings.TrimSuffix(server.URL, "/")+"/information_schema")
	var without int
	must(t, app.QueryRow("select count(*) from information_schema.tables where table_schema = 'penstock' and engine <> 'InnoDB'").Scan(&without))
	if without != 0 {
		t.Errorf("%d tables are in an engine without transactions", without)
	}
	// Sessions begin with limits that are meant for people.
	limit := "set global sql_safe_updates = %d, global sql_select_limit = %d, global max_join_size = %[2]d"
	exec(t, app, fmt.Sprintf(limit, 1, 1))
	q := openStore(t, server.URL, mysql.Options{}).Queue("jobs")
	made, err := q.Enqueue(t.Context(), penstock.NewJob{DedupKey: "a"}, penstock.NewJob{DedupKey: "b"}, penstock.NewJob{UniqueKey: "u"})
	must(t, err)
	jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: len(made), Lease: time.Hour})
	must(t, err)
	var leases []int64
	for _, j := range jobs {
		leases = append(leases, j.Lease)
	}
	if held, err := q.Ack(t.Context(), leases...); err != nil || len(held) != len(made) {
		t.Errorf("of %d jobs %d ended: %v", len(made), len(held), err)
	}
	exec(t, app, fmt.Sprintf(limit, 0, uint64(1<<64-1)))
	// Another process writes the version while this one waits to: 1020 where a row has changed since the statement's snapshot, else 1062.
	var version int64
	must(t, app.QueryRow("select max(version) from penstock.version").Scan(&version))
	exec(t, app, "delete from penstock.version")
	tx, err := app.Begin()
	must(t, err)
	defer tx.Rollback()
	_, err = tx.Exec("insert into penstock.version (version) values (?)", version)
	must(t, err)
	migrated := make(chan error, 1)
	go func() { migrated <- s.Migrate(t.Context()) }()
	for waiting := 0; waiting == 0; time.Sleep(150 * time.Millisecond) { // the server looks again 100 ms after the last question
		must(t, app.QueryRow("select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'").Scan(&waiting))
	}
	must(t, tx.Commit(), <-migrated)
}
