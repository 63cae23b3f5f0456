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

// Tables of the version before are brought up to date, by ten processes at once: their leases have other keys, and one that is held
// is held still.
func TestOlderTables(t *testing.T) {
	t.Parallel()
	for _, engine := range engines(t) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			url := testserver.MariaDBDatabase(t)
			app := application(t, url)
			schema, _ := databaseOf(t, url)
			opts := mysql.Options{Schema: schema, Engine: engine}
			s := openStore(t, url, opts)
			must(t, s.Migrate(t.Context()), s.CreateQueue(t.Context(), "jobs", penstock.FIFO))
			_, err := s.Queue("jobs").Enqueue(t.Context(), make([]penstock.NewJob, 2)...)
			must(t, err)
			exec(t, app, "drop table leases", "drop table attempts", "drop table adopted", "alter table subscriptions change keeps_settled marks boolean not null",
				"alter table entries drop key entries_replay, drop key entries_row, drop column row_id", "alter table queues drop column turns", "update version set version = 3",
				"create table leases (lease bigint not null primary key, queue_id bigint not null, seq bigint not null, group_key varbinary(256) not null, `key` varbinary(1024) not null, attempt int not null, "+
					"until datetime(6) not null, worker varbinary(256) not null, unique key leases_job (queue_id, seq), key leases_until (queue_id, until), key leases_key (queue_id, `key`, seq)) engine = "+engine,
				"insert into leases select 77, q.id, j.seq, '', '', 1, utc_timestamp(6) + interval 1 hour, 'w' from queues q, queue_jobs j where j.seq = (select min(seq) from queue_jobs)")
			dropCheck(t, app, "queue_jobs", "headers_")
			exec(t, app, "alter table queue_jobs add constraint queue_jobs_chk_1 check (json_valid(headers) and json_type(headers) = 'OBJECT')")
			var all sync.WaitGroup
			for range 10 {
				s := openStore(t, url, opts)
				all.Go(func() {
					if err := s.Migrate(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			fresh := fmt.Sprint(schema, "_fresh")
			other := openStore(t, url, mysql.Options{Schema: fresh, Engine: engine})
			must(t, other.Migrate(t.Context()))
			defer func() { must(t, other.DropSchema(t.Context())) }()
			for what, query := range map[string]string{
				"keys":    "select table_name, index_name, seq_in_index, column_name, non_unique from information_schema.statistics where table_schema = %s and table_name not in ('queue_jobs', 'counter')",
				"columns": "select table_name, column_name, column_type, is_nullable from information_schema.columns where table_schema = %s and table_name not in ('queue_jobs', 'counter')",
			} {
				var differ int
				is, want := fmt.Sprintf(query, "'"+schema+"'"), fmt.Sprintf(query, "'"+fresh+"'")
				must(t, app.QueryRow("select (select count(*) from ("+is+" except "+want+") a) + (select count(*) from ("+want+" except "+is+") b)").Scan(&differ))
				if differ != 0 {
					t.Errorf("%d %s differ from those of new tables", differ, what)
				}
			}
			q := openStore(t, url, opts).Queue("jobs")
			jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 5, Lease: time.Hour})
			if err != nil || len(jobs) != 1 {
				t.Errorf("claimed %d jobs, %v, want the one that is not held", len(jobs), err)
			}
			if held, err := q.Extend(t.Context(), time.Millisecond, 77); err != nil || len(held) != 1 {
				t.Errorf("extended %v, %v", held, err)
			}
			for deadline := time.Now().Add(time.Minute); err == nil && len(jobs) == 1 && time.Now().Before(deadline); {
				var more []penstock.Job
				more, err = q.Claim(t.Context(), driver.Claim{Jobs: 5, Lease: time.Hour})
				jobs = append(jobs, more...)
			}
			if _, err := q.Enqueue(t.Context(), penstock.NewJob{Headers: map[string]string{"a": "b"}}); err != nil {
				t.Error(err)
			}
			if err != nil || len(jobs) != 2 || jobs[1].Attempt != 2 {
				t.Errorf("claimed %+v, %v, want the job whose lease has ended", jobs, err)
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
	server := testserver.StartMariaDB(t, "--default-storage-engine=MyISAM", "--lower-case-table-names=1")
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
	u := strings.TrimSuffix(server.URL, "/") + "/information_schema"
	var without int
	must(t, application(t, u).QueryRow("select count(*) from information_schema.tables where table_schema = 'penstock' and engine <> 'InnoDB'").Scan(&without))
	if without != 0 {
		t.Errorf("%d tables are in an engine without transactions", without)
	}
}
