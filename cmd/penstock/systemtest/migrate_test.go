package systemtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
)

// A guide of docs/migrate for jobs in tables is followed with the other system's tables; testdata/migrate says of which
// version. The move runs twice, as after a lost answer: each job is in one system. Jobs that are due come back, of a key not
// more than the first. pg-boss has such keys: 31 has been tried and is before 32, and 42 is more urgent than 41. 21 is blocked by a failed job.
// A job that has been tried has the attempts left that it had there. A job of a kind comes back with it, where the other system has kinds.
func TestMigrationOfJobs(t *testing.T) {
	for _, of := range []struct{ guide, stay, moved, attempts, back, left, others string }{
		{"river", "5 6 7", "3 2 0", "22 25", "1 2 5 6 7 ann bob", "0 2 0", "select args ->> 'to' from river_job where kind = 'other' and args ? 'to'"},
		{"graphile-worker", "6 7", "3 2 0", "22 25", "1 2 6 7 ann bob", "0 2 0", "select payload ->> 'to' from graphile_worker._private_jobs where task_id = 2 and payload::jsonb ? 'to'"},
		{"pg-boss", "20 21 5 6 7 8", "5 2 0", "2 3", "1 2 20 21 42 5 6 7 8 ann bob", "2 2 0", ""},
	} {
		t.Run(of.guide, func(t *testing.T) {
			t.Parallel()
			g := newGuide(t, of.guide, "testdata/migrate/"+of.guide+".sql")
			old := "select string_agg(coalesce(job ->> 'n', job ->> 'to'), ' ' order by coalesce(job ->> 'n', job ->> 'to')) from old_jobs"
			g.follow("Steps")
			g.follow("Steps", "with moved as")
			g.want(of.stay, old)
			g.want(of.moved, "select ready || ' ' || delayed || ' ' || dead from penstock.queue_status('emails')")
			g.want(of.attempts, `select string_agg(distinct headers ->> 'penstock-max-attempts', ' ' order by headers ->> 'penstock-max-attempts')
				from (select headers from penstock.emails union all select headers from penstock._scheduled) jobs`)
			g.execute(`select penstock.enqueue('emails', '{"to": "bob"}', kind => 'other')`)
			g.follow("Go back")
			g.want(of.back, old)
			if of.others != "" {
				g.want("bob", of.others)
			}
			g.want(of.left, "select ready || ' ' || delayed || ' ' || dead from penstock.queue_status('emails')")
		})
	}
}

// The guide for Celery has a task that is delivered twice, and one with a delay.
func TestMigrationFromCelery(t *testing.T) {
	t.Parallel()
	g := newGuide(t, "celery", "")
	g.follow("Steps")
	g.follow("Steps", "dedup_key =>")
	g.want("1 1", "select ready || ' ' || delayed from penstock.queue_status('emails')")
	g.follow("Go back")
	g.want("0 1", "select ready || ' ' || delayed from penstock.queue_status('emails')")
}

// The guide for JobRunr moves the jobs of one request that wait, in one statement that may run twice. Two of them are due tomorrow,
// and one of these has failed twice.
func TestMigrationFromJobRunr(t *testing.T) {
	t.Parallel()
	g := newGuide(t, "jobrunr", "testdata/migrate/jobrunr.sql")
	g.follow("Steps")
	g.follow("Steps", "with moved as")
	g.want("4 5 6", "select string_agg(jobasjson::jsonb #>> '{jobDetails,jobParameters,0,object,n}', ' ' order by jobasjson::jsonb #>> '{jobDetails,jobParameters,0,object,n}') from jobrunr_jobs")
	g.want("2 2 0", "select ready || ' ' || delayed || ' ' || dead from penstock.queue_status('emails')")
	g.want("1 11, 2 11 24, 3 9 24, ann", `select string_agg(concat_ws(' ', coalesce(job ->> 'n', job ->> 'to'), attempts, hours), ', ' order by job)
		from (select convert_from(payload, 'UTF8')::jsonb, headers ->> 'penstock-max-attempts', null from penstock.emails where headers ->> 'penstock-kind' = 'send-email'
		       union all select convert_from(payload, 'UTF8')::jsonb, headers ->> 'penstock-max-attempts', round(extract(epoch from due - now()) / 3600)::text
		                   from penstock._scheduled where headers ->> 'penstock-kind' = 'send-email') as j(job, attempts, hours)`)
	g.follow("Go back")
	g.want("0 2", "select ready || ' ' || delayed from penstock.queue_status('emails')")
}

// The guide for BullMQ has a program, which clients/typescript/test/bullmq/test.sh runs. It leaves this job.
func TestMigrationFromBullMQ(t *testing.T) {
	t.Parallel()
	g := newGuide(t, "bullmq", "")
	g.follow("Steps")
	g.execute(`select penstock.enqueue('emails', '{"n": 1}', kind => 'plain', dedup_key => 'bullmq 1')`)
	g.want("1 digest", "select s.ready || ' ' || c.name from penstock.queue_status('emails') s, penstock._schedule c")
	g.follow("Go back")
	g.want("0 0", "select ready || ' ' || (select count(*) from penstock._schedule) from penstock.queue_status('emails')")
}

// A hand-written outbox, whose job has sent one of three messages, is migrated while the application continues to insert. The
// broker gets the other two and the new one. After the way back, rows wait in the table again.
func TestMigrationOfAnOutbox(t *testing.T) {
	broker := testserver.RabbitMQURL(t)
	deleteQueue(t, broker, "orders") // it may not exist
	t.Cleanup(func() { deleteQueue(t, broker, "orders") })
	g := newGuide(t, "outbox", "")
	g.replace = []string{"amqp://guest:guest@localhost/", broker}
	g.after = "insert into outbox_message (aggregate_id, type, payload) values ('ann', 'order.placed', '{}')"
	g.follow("")
	g.execute("insert into outbox_message (aggregate_id, type, payload, sent_at) values ('ann', 'order.placed', '{}', now()), ('ann', 'order.placed', '{}', null), ('bob', 'order.placed', '{}', null)")
	g.follow("Steps")
	if n := queueLength(t, broker, "orders"); n != 3 {
		t.Errorf("%d messages are at the broker, want 3", n)
	}
	g.want("0", "select count(*)::text from outbox_message where sent_at is null")
	g.follow("Go back")
	g.execute(g.after)
	g.want("1", "select count(*)::text from outbox_message where sent_at is null")
}

// Behind the marker the connector sees no row, and the outbox has the messages that its consumers
// know.
func TestMigrationFromDebezium(t *testing.T) {
	t.Parallel()
	g := newGuide(t, "debezium", "")
	event := `insert into outboxevent values ('4d47e190-0402-4048-bc2c-89dd54343cdc', 'order', '1', 'OrderCreated', '{"id": 1}')`
	g.execute("create table outboxevent (id uuid not null, aggregatetype varchar(255) not null, aggregateid varchar(255) not null, type varchar(255) not null, payload jsonb)")
	g.after = event
	g.follow("Steps")
	g.want("Marker", "select string_agg(type, ' ') from outboxevent")
	g.want(`4d47e190-0402-4048-bc2c-89dd54343cdc order 1 {"type": "OrderCreated"} {"id": 1}`,
		"select concat_ws(' ', id, topic, key, headers, convert_from(payload, 'UTF8')) from penstock.orders")
	g.follow("Go back")
	g.execute(event)
	g.want("Marker OrderCreated", "select string_agg(type, ' ' order by type) from outboxevent")
}

// After the migration the publication does not have that table, and each change is a message like
// Sequin's.
func TestMigrationFromSequin(t *testing.T) {
	t.Parallel()
	g := newGuide(t, "sequin", "")
	g.follow("")
	g.execute("insert into shop_order values (1, 'ann', 10)")
	g.after = "insert into shop_order values (2, 'bob', 5); update shop_order set total = 7 where id = 2; delete from shop_order where id = 2"
	g.follow("Steps")
	g.want("", "select coalesce(string_agg(tablename, ' '), '') from pg_publication_tables where pubname = 'sequin_publication'")
	g.want("2 insert 5 -, 2 update 7 5, 2 delete 7 -, 1 read 10 -", `select string_agg(concat_ws(' ', key, m ->> 'action', m -> 'record' ->> 'total', coalesce(m -> 'changes' ->> 'total', '-')), ', ' order by seq)
		from (select seq, key, convert_from(payload, 'UTF8')::jsonb from penstock.orders) as o(seq, key, m)`)
	g.follow("Go back")
	g.want("shop_order", "select string_agg(tablename, ' ') from pg_publication_tables where pubname = 'sequin_publication'")
	g.execute("insert into shop_order values (3, 'cyd', 1)")
	g.want("4", "select count(*)::text from penstock.orders")
}

// guide is a page of docs/migrate that is followed in a database.
type guide struct {
	t       *testing.T
	file    string
	walk    *walk
	conn    *pgx.Conn
	replace []string // the page's text, and its replacement here
	after   string   // the application's inserts once a trigger was created
}

// newGuide begins one, with the tables of an SQL file.
func newGuide(t *testing.T, name, tables string) *guide {
	t.Helper()
	g := &guide{t: t, file: "../../../docs/migrate/" + name + ".md", walk: newWalk(t, postgrestest.Database(t))}
	var err error
	if g.conn, err = pgx.Connect(t.Context(), g.walk.database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.conn.Close(t.Context()) })
	g.walk.follow("export PENSTOCK_DATABASE_URL='" + g.walk.database + "'\npenstock migrate")
	if tables != "" {
		text, err := os.ReadFile(filepath.FromSlash(tables))
		if err != nil {
			t.Fatal(err)
		}
		g.execute(string(text))
	}
	return g
}

var fenced = regexp.MustCompile("(?s)```(sql|sh|yaml)\n(.*?)\n```")

// follow runs the blocks of a section, or only those that contain a text. "" is the part before the first
// section.
func (g *guide) follow(section string, having ...string) {
	g.t.Helper()
	text, err := os.ReadFile(g.file)
	if err != nil {
		g.t.Fatal(err)
	}
	found := 0
	for i, part := range strings.Split(string(text), "\n## ") {
		heading, body, _ := strings.Cut(part, "\n")
		if i == 0 {
			heading = ""
		}
		if heading != section {
			continue
		}
		for _, block := range fenced.FindAllStringSubmatch(body, -1) {
			code := strings.NewReplacer(g.replace...).Replace(block[2])
			if len(having) > 0 && !strings.Contains(code, having[0]) {
				continue
			}
			found++
			switch block[1] {
			case "sh":
				g.walk.follow(code)
			case "yaml":
				if err := os.WriteFile(filepath.Join(g.walk.dir, "guide.yaml"), []byte(code), 0o600); err != nil {
					g.t.Fatal(err)
				}
				g.walk.follow("penstock status --config guide.yaml") // refuses an invalid one
			case "sql":
				g.execute(code)
				if strings.Contains(code, "create trigger") && g.after != "" {
					g.execute(g.after)
				}
			}
		}
	}
	if found == 0 {
		g.t.Fatalf("%s has no block under %q", g.file, section)
	}
}

func (g *guide) execute(statements string) {
	g.t.Helper()
	if _, err := g.conn.Exec(g.t.Context(), statements, pgx.QueryExecModeSimpleProtocol); err != nil {
		g.t.Fatalf("%v:\n%s", err, statements)
	}
}

func (g *guide) want(want, query string) {
	g.t.Helper()
	var got string
	if err := g.conn.QueryRow(g.t.Context(), query).Scan(&got); err != nil {
		g.t.Fatalf("%v:\n%s", err, query)
	}
	if got != want {
		g.t.Errorf("%s\nis %q, want %q", query, got, want)
	}
}
