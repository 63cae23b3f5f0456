package portable_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/portable"
)

// Tables of version 4 are brought up to date by ten processes at once, and are then as new ones.
func TestOlderTables(t *testing.T) {
	t.Parallel()
	url := testserver.Database(t, testserver.PostgresURL(t))
	if err := openStore(t, url, portable.Options{}).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"drop table adopted", "drop table attempts", "alter table subscriptions rename column keeps_settled to marks", "alter table leases drop column claim, drop column begun, alter column lease set generated always", "drop index dedup_over",
		"drop index entries_row, entries_by_state, entries_by_parked_key, entries_by_due, entries_by_replay, entries_by_hold", "alter table entries drop column row_id",
		"create index entries_state on entries (subscription_id, state, ts, seq) where state > 0",
		"alter table entries rename column parked_key to line", "create index entries_line on entries (subscription_id, line, ts, seq) where line is not null", "update version set version = 4",
	} {
		exec(t, url, "set search_path = penstock_portable; "+statement)
	}
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
	if err := openStore(t, url, portable.Options{Schema: "fresh"}).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for what, query := range map[string]string{
		"columns": "select concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default) from information_schema.columns where table_schema = $1 order by 1",
		"indexes": "select replace(indexdef, schemaname || '.', '') from pg_indexes where schemaname = $1 order by 1",
	} {
		var are [2][]string
		for i, schema := range []string{"penstock_portable", "fresh"} {
			rows, err := conn.Query(t.Context(), query, schema)
			if err == nil {
				are[i], err = pgx.CollectRows(rows, pgx.RowTo[string])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if len(are[0]) == 0 || !slices.Equal(are[0], are[1]) {
			t.Errorf("%s are\n%s\nand in new tables\n%s", what, strings.Join(are[0], "\n"), strings.Join(are[1], "\n"))
		}
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
