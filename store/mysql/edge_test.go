package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func exec(t testing.TB, db interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// A table without a row is what a CreateOutbox leaves that died on the way, a row without a table what a DropOutbox leaves.
// The next one finishes it.
func TestWhatDiedOnTheWayIsFinished(t *testing.T) {
	t.Parallel()
	url := testserver.MariaDBDatabase(t)
	s, app := migrated(t, url), application(t, url)
	for _, kind := range []string{"outbox", "queue"} {
		exec(t, app, "create table "+kind+"_left (n int)", "insert into "+kind+"_left values (1)")
	}
	must(t, s.CreateQueue(t.Context(), "left", penstock.FIFO))
	must(t, s.DropQueue(t.Context(), "left"))
	src := reader(t, s, "left")
	must(t, s.Publish(t.Context(), "left", penstock.Message{Payload: []byte("m")}))
	if b := fetch(t, src, 10); len(b.Messages) != 1 {
		t.Fatalf("fetched %d", len(b.Messages))
	}
	exec(t, app, "drop table outbox_left")
	if all, err := s.Status(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("status: %+v, %v", all, err)
	}
	must(t, s.DropOutbox(t.Context(), "left"), s.CreateOutbox(t.Context(), "left"))
}

// Outboxes are dropped while producers publish and a relay reads and settles: each of them learns of it, and none waits for
// ever.
func TestDropUnderLoad(t *testing.T) {
	t.Parallel()
	s := migrated(t, testserver.MariaDBDatabase(t))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for round := range 5 {
		src := reader(t, s, "orders")
		var all sync.WaitGroup
		var read sync.WaitGroup
		read.Add(1)
		for range 3 {
			all.Go(func() {
				for err := error(nil); !errors.Is(err, penstock.ErrNoOutbox); {
					if err = s.Publish(ctx, "orders", penstock.Message{Key: "k", Payload: []byte("m")}); err != nil && !errors.Is(err, penstock.ErrNoOutbox) {
						t.Errorf("Publish: %v", err)
						return
					}
				}
			})
		}
		all.Go(func() {
			begun := sync.OnceFunc(read.Done)
			defer begun()
			for {
				b, err := src.Fetch(ctx, driver.Limit{Messages: 10, Bytes: 1 << 20})
				if err == nil && len(b.Messages) > 0 {
					begun()
					err = src.Settle(ctx, b.Number, driver.Settled{Batch: b})
				}
				if err != nil {
					if !errors.Is(err, penstock.ErrNoOutbox) {
						t.Errorf("round %d, the reader: %v, want ErrNoOutbox", round, err)
					}
					return
				}
			}
		})
		read.Wait()
		must(t, s.DropOutbox(ctx, "orders"))
		all.Wait()
	}
}

// An application's session may have any SQL mode, and numbers in steps of three.
func TestSessionsOfApplications(t *testing.T) {
	t.Parallel()
	modes := []string{"", "ANSI", "ANSI_QUOTES,PIPES_AS_CONCAT,IGNORE_SPACE", "NO_BACKSLASH_ESCAPES", "HIGH_NOT_PRECEDENCE", "TRADITIONAL", "NO_AUTO_VALUE_ON_ZERO,PAD_CHAR_TO_FULL_LENGTH"}
	if !ofMySQL(t) {
		modes = append(modes, "ORACLE", "EMPTY_STRING_IS_NULL")
	}
	for _, engine := range engines(t) {
		for _, mode := range modes {
			t.Run(engine+"/"+mode, func(t *testing.T) {
				t.Parallel()
				url := testserver.MariaDBDatabase(t)
				schema, _ := databaseOf(t, url)
				s := openStore(t, url, mysql.Options{Schema: schema, Engine: engine})
				must(t, s.Migrate(t.Context()), s.CreateQueue(t.Context(), "jobs", penstock.FIFO), s.CreateInbox(t.Context(), "billing", 0))
				src := reader(t, s, "orders")
				conn, err := application(t, url).Conn(t.Context())
				must(t, err)
				defer conn.Close()
				if _, err := conn.ExecContext(t.Context(), "set session sql_mode = ?, session auto_increment_increment = 3, session auto_increment_offset = 2", mode); err != nil {
					t.Fatal(err)
				}
				plain := "insert into outbox_orders (`key`, topic, payload) values ('plain', 't', 'p')"
				if strings.Contains(mode, "ANSI") || mode == "ORACLE" {
					plain = `insert into outbox_orders ("key", topic, payload) values ('plain', 't', 'p')`
				}
				exec(t, conn, plain)
				odd := `é\'"` + "`?{schema}"
				must(t, s.Outbox("orders").PublishTx(t.Context(), alone{conn}, penstock.Message{Key: odd, Topic: odd, Headers: map[string]string{odd: odd}, Payload: []byte(odd)}, penstock.Message{Payload: nil}))
				b := fetch(t, src, 10)
				if len(b.Messages) != 3 || b.Messages[0].Key != "plain" || b.Messages[1].Key != odd || b.Messages[1].Headers[odd] != odd || string(b.Messages[1].Payload) != odd {
					t.Fatalf("fetched %+v", b.Messages)
				}
				var jobs []penstock.NewJob
				for i := range 5 {
					jobs = append(jobs, penstock.NewJob{Key: odd, Payload: []byte(fmt.Sprint(i)), DedupKey: fmt.Sprint(odd, i%4)})
				}
				q := s.Queue("jobs")
				for _, unreturned := range []bool{false, true} {
					var tx mysql.Tx = alone{conn}
					if unreturned {
						tx = unreturning{alone{conn}}
					}
					made, err := q.EnqueueTx(t.Context(), tx, jobs...)
					must(t, err)
					if unreturned != made[0].Deduplicated || !made[4].Deduplicated || made[4].ID != made[0].ID {
						t.Errorf("made %+v", made)
					}
					for i := range jobs {
						jobs[i].DedupKey = ""
					}
					more, err := q.EnqueueTx(t.Context(), tx, jobs...)
					must(t, err)
					for i, e := range more {
						var payload string
						must(t, conn.QueryRowContext(t.Context(), "select payload from queue_jobs where seq = ?", e.ID).Scan(&payload))
						if payload != fmt.Sprint(i) {
							t.Errorf("number %d is of the job %s, want %d", e.ID, payload, i)
						}
						jobs[i].DedupKey = fmt.Sprint(odd, i%4)
					}
				}
				box := s.Inbox("billing")
				for range 2 {
					tx, err := conn.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
					must(t, err)
					defer func() { _ = tx.Rollback() }()
					got, err := box.InOrder(t.Context(), tx, penstock.Message{ID: odd + "2", Key: odd, Headers: map[string]string{penstock.HeaderPrevious: odd + "1", odd: odd}, Payload: []byte(odd)}, 0)
					must(t, err)
					if len(got) != 0 {
						t.Errorf("handed over %+v", got)
					}
					due, err := box.Due(t.Context(), tx, 10)
					must(t, err, tx.Rollback())
					if len(due) != 1 || due[0].Headers[odd] != odd || due[0].Missing != odd+"1" {
						t.Errorf("due: %+v", due)
					}
				}
			})
		}
	}
}

// A message that a trigger publishes has the time when that happened, not the time when the trigger's statement began.
// Otherwise it could be behind the low-water mark by as long as a statement takes.
func TestPublishedByATrigger(t *testing.T) {
	t.Parallel()
	url := testserver.MariaDBDatabase(t)
	s, app := migrated(t, url), application(t, url)
	src := reader(t, s, "orders")
	exec(t, app, "create table business (n int)",
		"create trigger published after insert on business for each row insert into outbox_orders (`key`, payload) values ('k', new.n)",
		"insert into business select n from (select 1 as n union all select 2 union all select 3) three where sleep(0.3) = 0")
	b := fetch(t, src, 10)
	if len(b.Messages) != 3 {
		t.Fatalf("fetched %d", len(b.Messages))
	}
	for i := range b.Messages[1:] {
		if d := b.Messages[i+1].CreatedAt.Sub(b.Messages[i].CreatedAt); d < 250*time.Millisecond {
			t.Errorf("%s between the messages of rows that took 300 ms each", d)
		}
	}
}

// session is a pool or a connection.
type session interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// alone passes for a transaction: each statement is one.
type alone struct{ session }

func (alone) Rollback() error { return nil }

// unreturning reads MariaDB's own comments as MySQL does, which has no INSERT … RETURNING.
type unreturning struct{ alone }

var ofMariaDB = regexp.MustCompile(`/\*M!.*?\*/`)

func (c unreturning) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return c.alone.QueryContext(ctx, ofMariaDB.ReplaceAllString(query, ""), args...)
}

// What docs/reference/engines.md says to grant is enough.
func TestGrants(t *testing.T) {
	t.Parallel()
	url := testserver.MariaDBDatabase(t)
	schema, host := databaseOf(t, url)
	root := application(t, url)
	as := func(part string, grants ...string) string {
		user := schema[len(schema)-16:] + part // MySQL takes 32 characters
		exec(t, root, "create user '"+user+"'@'%' identified by 'secret'")
		t.Cleanup(func() { _, _ = root.Exec("drop user '" + user + "'@'%'") })
		for _, g := range grants {
			exec(t, root, "grant "+strings.ReplaceAll(g, "penstock.", schema+".")+" to '"+user+"'@'%'")
		}
		return user
	}
	dial := func(user string) *sql.DB {
		config := mysqldriver.NewConfig()
		config.User, config.Passwd, config.Net, config.Addr, config.DBName = user, "secret", "tcp", host, schema
		connector, err := mysqldriver.NewConnector(config)
		must(t, err)
		db := sql.OpenDB(connector)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	owner := openStore(t, "mysql://"+as("_owner", "create, alter, drop, index, select, insert, update, delete on penstock.*")+":secret@"+host+"/", mysql.Options{Schema: schema})
	must(t, owner.Migrate(t.Context()), owner.CreateOutbox(t.Context(), "orders"), owner.CreateQueue(t.Context(), "jobs", penstock.FIFO), owner.CreateInbox(t.Context(), "billing", 0))
	relay := openStore(t, "mysql://"+as("_relay", "select, insert, update, delete on penstock.*")+":secret@"+host+"/", mysql.Options{Schema: schema})

	producer := dial(as("_producer", "insert on penstock.outbox_orders", "select, insert on penstock.queue_jobs", "select on penstock.queues", "select, insert, update on penstock.dedup"))
	must(t, owner.Outbox("orders").PublishTx(t.Context(), alone{producer}, penstock.Message{Key: "k", Payload: []byte("m")}))
	tx, err := producer.Begin()
	must(t, err)
	_, err = owner.Queue("jobs").EnqueueTx(t.Context(), tx, penstock.NewJob{Payload: []byte("j"), DedupKey: "d"})
	must(t, err, tx.Commit())

	writer := openStore(t, "mysql://"+as("_writer", "select on penstock.version", "select on penstock.outboxes", "select on penstock.queues", "select, insert, delete on penstock.attempts",
		"insert on penstock.outbox_orders", "select, insert on penstock.queue_jobs")+":secret@"+host+"/", mysql.Options{Schema: schema})
	for range 2 { // the second one takes the attempt of the first away
		must(t, writer.Publish(t.Context(), "orders", penstock.Message{Payload: []byte("w")}))
		_, err = writer.Queue("jobs").Enqueue(t.Context(), penstock.NewJob{Payload: []byte("w")})
		must(t, err)
	}

	src, err := relay.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "s", Lease: time.Minute})
	must(t, err)
	b := fetch(t, src, 10)
	must(t, src.Renew(t.Context()), src.Settle(t.Context(), b.Number, driver.Settled{Batch: b}), relay.Maintain(t.Context(), "orders"))
	jobs, err := relay.Queue("jobs").Claim(t.Context(), driver.Claim{Jobs: 10, Lease: time.Minute})
	must(t, err)
	if len(b.Messages) != 3 || len(jobs) != 3 {
		t.Errorf("%d messages and %d jobs, want three of each", len(b.Messages), len(jobs))
	}
	_, err = relay.Queue("jobs").Ack(t.Context(), jobs[0].Lease)
	must(t, err, relay.Queue("jobs").Maintain(t.Context()))

	consumer := dial(as("_consumer", "select on penstock.inboxes", "select, update on penstock.turns", "select, insert, update, delete on penstock.received", "select, insert, update, delete on penstock.held",
		"select, insert, update, delete on penstock.gaps", "select, insert, update, delete on penstock.key_heads"))
	box := owner.Inbox("billing")
	handled := 0
	h := func(context.Context, *sql.Tx, penstock.Released) error { handled++; return nil }
	must(t, box.Process(t.Context(), consumer, penstock.Message{ID: "2", Key: "k", Headers: map[string]string{penstock.HeaderPrevious: "1"}}, 0, h))
	_, err = box.ProcessDue(t.Context(), consumer, h)
	must(t, err, box.Process(t.Context(), consumer, penstock.Message{ID: "3", Key: "k", Headers: map[string]string{penstock.HeaderPrevious: "2"}}, 0, h))
	if handled != 2 {
		t.Errorf("handled %d, want 2", handled)
	}

	// A role that may less gets an error that names the missing right.
	var hinted *penstock.HintError
	if err := relay.CreateOutbox(t.Context(), "other"); !errors.As(err, &hinted) || !strings.Contains(err.Error(), "create") {
		t.Errorf("CreateOutbox: %v, want a hint", err)
	}
	for what, err := range map[string]error{
		"a producer publishes elsewhere": owner.Outbox("other").PublishTx(t.Context(), alone{producer}, penstock.Message{Payload: []byte("m")}),
		"a producer receives":            func() error { _, err := box.First(t.Context(), alone{producer}, "x"); return err }(),
	} {
		if err == nil {
			t.Errorf("%s, and may not", what)
		}
	}
	if all, err := relay.Names(t.Context(), "outboxes"); err != nil || !slices.Equal(all, []string{"orders"}) {
		t.Errorf("outboxes: %q, %v", all, err)
	}
}
