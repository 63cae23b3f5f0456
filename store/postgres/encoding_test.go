package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// encodedDatabase is an empty database of another encoding.
func encodedDatabase(t *testing.T, encoding string) string {
	server, made := testserver.PostgresURL(t), freshDatabase(t)
	u, err := url.Parse(made)
	if err != nil {
		t.Fatal(err)
	}
	name := pgx.Identifier{strings.TrimPrefix(u.Path, "/")}.Sanitize()
	exec(t, server, "drop database "+name)
	exec(t, server, "create database "+name+" template template0 encoding '"+encoding+"' lc_collate 'C' lc_ctype 'C'")
	return made
}

// A byte that means nothing in the database's encoding is refused when it is written: it would stop every reader.
func TestUnreadableTextIsRefused(t *testing.T) {
	t.Parallel()
	f := fixtureOn(t, encodedDatabase(t, "WIN1252"), postgres.Options{})
	f.Must(f.store.CreateQueue(f.Ctx, "jobs", penstock.FIFO))
	const bad = `convert_from('\x5a6f81', 'WIN1252')`
	for _, sql := range []string{
		"insert into penstock.orders (key, payload) values (%s, 'x')", "insert into penstock.orders (topic, payload) values (%s, 'x')",
		"insert into penstock.orders (id, payload) values (%s, 'x')", "insert into penstock.orders (headers, payload) values (jsonb_build_object('k', %s), 'x')",
		"insert into penstock.jobs (key, payload) values (%s, 'x')", "insert into penstock.jobs (group_key, payload) values (%s, 'x')",
		"select penstock.enqueue('jobs', 'x', key => %s, not_before => now() + interval '1 day')", "select penstock.enqueue('jobs', 'x', dedup_key => %s)",
		"select penstock.enqueue_many('jobs', array['x'], keys => array[%s], not_befores => array[now() + interval '1 day'])",
		"select penstock.schedule('jobs', 's', '* * * * *', 'x', key => %s)",
	} {
		_, err := f.Conn.Exec(f.Ctx, fmt.Sprintf(sql, bad))
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "22P05" {
			t.Errorf("%s: got %v, want 22P05", sql, err)
		}
	}
	f.Exec("insert into penstock.orders (key, payload) values (chr(128), 'x')") // the euro
	f.Exec("insert into penstock.jobs (key, payload) values (chr(128), 'x')")
	b, err := f.subscribe().Fetch(f.Ctx, plenty)
	f.Must(err)
	jobs, err := f.store.Queue("jobs").Claim(f.Ctx, driver.Claim{Jobs: 10, Lease: time.Minute})
	f.Must(err)
	if len(b.Messages) != 1 || b.Messages[0].Key != "€" || len(jobs) != 1 || jobs[0].Key != "€" {
		t.Errorf("got %+v and %+v, want one of the euro each", b.Messages, jobs)
	}
}

// Whatever the encoding of the database, and whatever bytes it has taken in, no text of a message stops an
// outbox or a queue, and no two keys become one. The text of a broker's error does not stop them either.
func TestEncodings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		encoding, client string
		keys             []string // as SQL
		want             []string // as they are read
	}{
		{"UTF8", "LATIN1", []string{"'Zo' || chr(235)", "'Zo' || chr(8364)"}, []string{"Zoë", "Zo€"}},
		{"LATIN1", "UTF8", []string{"'Zo' || chr(235)", "'Zo' || chr(233)"}, []string{"Zoë", "Zoé"}},
		{"LATIN1", "LATIN1", []string{"'Zo' || chr(235)", "'Zo' || chr(233)"}, []string{"Zoë", "Zoé"}},
		{"WIN1252", "UTF8", []string{"'Zo' || chr(235)", "'Zo' || chr(128)"}, []string{"Zoë", "Zo€"}},
		{"SQL_ASCII", "UTF8", []string{`convert_from('\x5a6feb', 'SQL_ASCII')`, `convert_from('\x5a6fe9', 'SQL_ASCII')`}, []string{"Zo\xeb", "Zo\xe9"}},
	} {
		t.Run(c.encoding+" "+c.client, func(t *testing.T) {
			t.Parallel()
			f := fixtureOn(t, encodedDatabase(t, c.encoding), postgres.Options{})
			f.Exec("do $$ begin execute format('alter database %I set client_encoding = " + c.client + "', current_database()); end $$")
			f.store = openStore(t, f.URL, postgres.Options{})
			f.Must(f.store.CreateQueue(f.Ctx, "jobs", penstock.FIFO))
			for _, key := range c.keys {
				f.Exec("insert into penstock.orders (key, topic, payload) values (" + key + ", 't', 'x')")
				f.Exec("insert into penstock.jobs (key, payload) values (" + key + ", 'x')")
			}

			src := f.subscribe()
			b, err := src.Fetch(f.Ctx, plenty)
			f.Must(err)
			var got []string
			verdicts := make([]driver.Verdict, len(b.Messages))
			for i, m := range b.Messages {
				got = append(got, m.Key)
				verdicts[i] = driver.Verdict{Outcome: driver.Parked, RetryIn: time.Hour, Failures: []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "no: 東京"}}}
			}
			verdicts[0].Outcome = driver.Dead
			if !slices.Equal(got, c.want) {
				t.Fatalf("keys of messages are %q, want %q", got, c.want)
			}
			f.Must(storetest.Settle(f.Ctx, src, driver.Settled{Batch: b, Verdicts: verdicts}))
			parked, err := f.store.ParkedKeys(f.Ctx, "orders", "sub", 10)
			f.Must(err)
			letters, err := f.store.DeadLetters(f.Ctx, admin.DeadLetterQuery{Outbox: "orders", Subscription: "sub", Key: c.want[0]})
			f.Must(err)
			if len(parked) != 1 || parked[0].Key != c.want[1] || len(letters) != 1 || !strings.HasPrefix(letters[0].Failures[0].Err, "no: ") {
				t.Errorf("parked are %+v and dead %+v, want one each", parked, letters)
			}
			f.Must(src.Close(context.Background()))

			queue := f.store.Queue("jobs")
			jobs, err := queue.Claim(f.Ctx, driver.Claim{Jobs: 10, Lease: time.Minute})
			f.Must(err)
			got = nil
			for _, j := range jobs {
				got = append(got, j.Key)
			}
			if !slices.Equal(got, c.want) {
				t.Fatalf("keys of jobs are %q, want %q", got, c.want)
			}
			_, err = queue.Retry(f.Ctx, jobs[0].Lease, time.Hour, "東京")
			f.Must(err)
			f.Must(queue.DeadLetter(f.Ctx, jobs[1].Lease, "no: 東京"))
			dead, err := f.store.DeadJobs(f.Ctx, admin.DeadJobQuery{Queue: "jobs", Key: c.want[1], Limit: 10})
			f.Must(err)
			if len(dead) != 1 || dead[0].Job.Key != c.want[1] || !strings.HasPrefix(dead[0].Err(), "no: ") {
				t.Errorf("dead jobs are %+v, want one of %q", dead, c.want[1])
			}

			// A message that is sent back is the same.
			n, err := f.store.RetryDeadLetters(f.Ctx, admin.DeadLetterQuery{Outbox: "orders", Subscription: "sub", Key: c.want[0]})
			f.Must(err)
			jobsBack, err := f.store.RetryDeadJobs(f.Ctx, admin.DeadJobQuery{Queue: "jobs", Key: c.want[1]})
			f.Must(err)
			if n != 1 || jobsBack != 1 {
				t.Fatalf("%d messages and %d jobs were sent back, want one each", n, jobsBack)
			}
			again := f.subscribe()
			f.Eventually("the dead letter came again", func() bool {
				b, err = again.Fetch(f.Ctx, plenty)
				f.Must(err)
				return len(b.Messages) > 0
			})
			jobs, err = queue.Claim(f.Ctx, driver.Claim{Jobs: 10, Lease: time.Minute})
			f.Must(err)
			if len(b.Messages) != 1 || b.Messages[0].Key != c.want[0] || len(jobs) != 1 || jobs[0].Key != c.want[1] {
				t.Errorf("came again: %+v and %+v, want %q and %q", b.Messages, jobs, c.want[0], c.want[1])
			}
		})
	}
}
