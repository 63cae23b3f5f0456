package sqlite_test

import (
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/sqlite"
)

// Any language can do this: an INSERT next to the business data, and a DELETE.
func TestPlainInsertOfJobs(t *testing.T) {
	path, s, q := newQueue(t, penstock.FIFO)
	app := openApp(t, path)
	mustExec(t, app, `pragma recursive_triggers = 1`) // as the application likes
	for _, insert := range []string{
		`insert into penstock_queue_jobs (payload) values ('text')`,
		`insert into penstock_queue_jobs (payload, key, group_key, priority, headers) values (x'00ff', 'k', '', 1, '{"traceparent": "00-1", "n": 7}')`,
		`insert into penstock_queue_jobs (payload, key) values ('waits for its key', 'k')`,
		`insert into penstock_queue_jobs (payload, group_key) values ('of a tenant', 'acme')`,
		`insert into penstock_queue_jobs (payload, priority) values (42, -16)`,
		`insert into penstock_queue_jobs (payload, not_before) values ('tomorrow', ` + fmt.Sprint(time.Now().Add(24*time.Hour).UnixMilli()) + `)`,
		`insert into penstock_queue_jobs (payload, not_before) values ('long ago', 1000)`,
		`insert into penstock_queue_jobs (payload, key) values ('empty key', ''), ('no key', null)`,
	} {
		mustExec(t, app, insert)
	}
	var got []string
	jobs := claimJobs(t, q, 10)
	for _, j := range jobs {
		got = append(got, string(j.Payload))
	}
	if want := []string{"42", "text", "long ago", "empty key", "no key", "\x00\xff"}; !slices.Equal(got, want) {
		t.Fatalf("claimed %q, want %q", got, want)
	}
	if last := jobs[5]; last.Key != "k" || last.Priority != 1 || !maps.Equal(last.Headers, map[string]string{"traceparent": "00-1", "n": "7"}) || time.Since(last.CreatedAt).Abs() > time.Hour {
		t.Errorf("the job with everything is %+v", last)
	}
	mustExec(t, app, `delete from penstock_queue_jobs where key = 'k' and priority = 1`)
	if held, err := q.Extend(t.Context(), time.Hour, jobs[5].Lease); err != nil || len(held) != 0 {
		t.Errorf("the lease of a job that was deleted: %d, %v", held, err)
	}
	if next := claimJobs(t, q, 10); len(next) != 1 || string(next[0].Payload) != "waits for its key" {
		t.Errorf("after the job of its key was deleted: %v", next)
	}
	mustExec(t, app, `delete from penstock_queue_jobs`)
	all, err := s.QueueStatus(t.Context())
	if st := all[0]; err != nil || st.Ready+st.Running+st.Delayed+st.Waiting != 0 {
		t.Errorf("after everything was deleted: %+v, %v", st, err)
	}
}

// A deadline in another form than a time in UTC is ignored. Its job does not end with the expired one before it.
func TestPlainDeadlines(t *testing.T) {
	path, _, q := newQueue(t, penstock.FIFO)
	app := openApp(t, path)
	odd := []string{"2000-01-01T00:00:00Z", "", "0", "2000-01-01", "2000-01-01T00:00:00-05:00"}
	for _, deadline := range odd {
		mustExec(t, app, fmt.Sprintf(`insert into penstock_queue_jobs (payload, headers) values ('%s', '{"penstock-deadline": "%[1]s"}')`, deadline))
	}
	var got []string
	for range odd {
		for _, j := range claimJobs(t, q, 1) {
			got = append(got, string(j.Payload))
		}
	}
	if !slices.Equal(got, odd[1:]) {
		t.Errorf("claimed jobs with the deadlines %q, want %q", got, odd[1:])
	}
}

// The table refuses what no store takes, and shows which column it is.
func TestPlainInsertOfBadJobs(t *testing.T) {
	path, _, _ := newQueue(t, penstock.FIFO)
	app := openApp(t, path)
	for column, values := range map[string][]any{
		"key":        {"a\x00b", strings.Repeat("é", 513), []byte("k")},
		"group_key":  {"a\x00b", strings.Repeat("g", 257), nil, []byte("g")},
		"priority":   {-17, 16, 0.5, "high", nil},
		"headers":    {`["not", "an object"]`},
		"not_before": {"2013-01-01", -1, 1e20},
		"payload":    {nil},
		"created_at": {"2013-01-01"},
	} {
		for _, value := range values {
			insert := `insert into penstock_queue_jobs (payload, ` + column + `) values ('x', ?)`
			if column == "payload" {
				insert = `insert into penstock_queue_jobs (payload) values (?)`
			}
			if _, err := app.Exec(insert, value); err == nil || !strings.Contains(err.Error(), column) {
				t.Errorf("%s = %.20v: the error %v does not name the column", column, value, err)
			}
		}
	}
	mustExec(t, app, `insert into penstock_queue_jobs (payload, key, group_key) values ('x', ?, ?)`, strings.Repeat("é", 512), strings.Repeat("g", 256))
	if _, err := app.Exec(`update penstock_queue_jobs set priority = 1`); err == nil || !strings.Contains(err.Error(), "delete it and insert") {
		t.Errorf("a job that changes its place: %v", err)
	}
	for _, table := range []string{"ready", "keyed", "scheduled", "leases"} {
		if n := scan[int](t, app, `select count(*) from penstock_`+table); n != map[string]int{"keyed": 1, "ready": 1}[table] {
			t.Errorf("%d rows in penstock_%s", n, table)
		}
	}
}

// Any language takes jobs out in its own transaction, as the package says.
func TestPlainDequeue(t *testing.T) {
	path, _, q := newQueue(t, penstock.LIFO)
	app := openApp(t, path)
	if _, err := q.Enqueue(t.Context(), penstock.NewJob{Payload: []byte("1"), Key: "k"}, penstock.NewJob{Payload: []byte("2"), Key: "k"}, penstock.NewJob{Payload: []byte("3")}); err != nil {
		t.Fatal(err)
	}
	const dequeue = `delete from penstock_queue_jobs where seq = (
		select abs(r.rank) from penstock_ready r join penstock_queues q on q.id = r.queue_id
		where q.name = 'jobs' and r.group_key = '' order by r.priority, r.rank limit 1)
		returning payload`
	for _, want := range []string{"3", "1", "2"} {
		for _, end := range []func(*sql.Tx) error{(*sql.Tx).Rollback, (*sql.Tx).Commit} {
			tx, err := app.Begin()
			if err != nil {
				t.Fatal(err)
			}
			var got string
			if err := tx.QueryRow(dequeue).Scan(&got); err != nil || got != want {
				t.Errorf("dequeued %q, %v, want %q", got, err, want)
			}
			if err := end(tx); err != nil {
				t.Fatal(err)
			}
		}
	}
	if jobs := claimJobs(t, q, 1); len(jobs) != 0 {
		t.Errorf("left is %v", jobs)
	}
}

// Ten thousand jobs that wait for one key, or whose time has not come, or that run, are not in the
// way of others. The index in which the next one is found has only ready jobs.
func TestHotKeyIsOutOfTheWay(t *testing.T) {
	path, _, q := newQueue(t, penstock.FIFO)
	app := openApp(t, path)
	const many = 10_000
	jobs := make([]penstock.NewJob, 0, 2*many+2)
	for range many {
		jobs = append(jobs, penstock.NewJob{Key: "hot"}, penstock.NewJob{NotBefore: time.Now().Add(time.Hour)})
	}
	jobs = append(jobs, penstock.NewJob{Payload: []byte("other")}, penstock.NewJob{Key: "cold"})
	ids, err := q.Enqueue(t.Context(), jobs...)
	if err != nil {
		t.Fatal(err)
	}
	if ready := scan[int](t, app, `select count(*) from penstock_ready`); ready != 3 {
		t.Errorf("%d jobs are ready, want one of each key and one without", ready)
	}
	first := claimJobs(t, q, 10)
	if len(first) != 3 || first[0].ID != ids[0].ID {
		t.Fatalf("claimed %d jobs, want 3", len(first))
	}
	if ready := scan[int](t, app, `select count(*) from penstock_ready`); ready != 0 {
		t.Errorf("%d jobs are ready behind those that run", ready)
	}
	if _, err := q.Ack(t.Context(), first[0].Lease); err != nil {
		t.Fatal(err)
	}
	if next := claimJobs(t, q, 10); len(next) != 1 || next[0].ID != ids[2].ID {
		t.Errorf("after the first of the hot key came %v, want its second", next)
	}
}

// Nothing is left of a queue that is dropped, nor is anything of another one's taken along.
func TestDroppedQueueLeavesNothing(t *testing.T) {
	_, s, app := newFile(t, sqlite.Options{})
	names := []string{"jobs", "Jobs", "s", "jobs_ids", "scheduled_of_jobs"}
	for _, name := range names {
		must(t, s.CreateQueue(t.Context(), name, penstock.LIFO))
	}
	for _, name := range names {
		q := s.Queue(name)
		_, err := q.Enqueue(t.Context(), penstock.NewJob{Key: "k", DedupKey: "d"}, penstock.NewJob{NotBefore: time.Now().Add(time.Hour)}, penstock.NewJob{}, penstock.NewJob{})
		must(t, err)
		for i, j := range claimJobs(t, q, 3) { // by turns a lease, a dead letter and a history
			switch i {
			case 1:
				err = q.DeadLetter(t.Context(), j.Lease, "no")
			case 2:
				_, err = q.Retry(t.Context(), j.Lease, 0, "no")
			}
			must(t, err)
		}
		must(t, s.SetSchedule(t.Context(), penstock.Schedule{Queue: name, Name: "s", Cron: "@hourly"}), s.DropQueue(t.Context(), name))
	}
	for _, table := range []string{"queues", "ready", "keyed", "busy", "scheduled", "leases", "histories", "dead_jobs", "dedup", "schedules"} {
		if n := scan[int](t, app, `select count(*) from penstock_`+table); n != 0 {
			t.Errorf("%d rows are left in penstock_%s", n, table)
		}
	}
	if n := scan[int](t, app, `select count(*) from sqlite_schema where name like '%jobs~%' or name like '%of_jobs'`); n != 0 {
		t.Errorf("%d things are left of queues that were dropped", n)
	}
}
