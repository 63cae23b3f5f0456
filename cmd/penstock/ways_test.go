package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/ingest"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/store/postgres"
	writing "github.com/penstock/penstock/writer"
)

// Every option of a job reaches the worker through every way into a queue, and a second job with its unique key replaces it.
func TestOptionsThroughEveryWay(t *testing.T) {
	t.Parallel()
	url := postgrestest.Database(t)
	d := urlDesk(t, url)
	ctx := t.Context()
	env := suite.NewEnv(t)
	store, err := postgres.Open(ctx, url, postgres.Options{})
	noError(t, err)
	t.Cleanup(func() { store.Close() })
	pool, err := pgxpool.New(ctx, url)
	noError(t, err)
	t.Cleanup(pool.Close)
	file := func(line map[string]any) string {
		text, _ := json.Marshal(line)
		name := filepath.Join(t.TempDir(), "lines.jsonl")
		write(t, name, string(text)+"\n")
		return name
	}
	deadline := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
	headers := func(j penstock.NewJob) string {
		text, _ := json.Marshal(j.AllHeaders())
		return string(text)
	}
	sql := func(statement string, args ...any) error {
		_, err := pool.Exec(ctx, statement, args...)
		return err
	}
	// forwarded publishes a message with the headers of a job, and makes a job of it.
	forwarded := func(queue string, j penstock.NewJob, publish func(outbox string) error) error {
		outbox := queue + " out"
		if err := store.CreateOutbox(ctx, outbox); err != nil && !strings.Contains(err.Error(), "exists") {
			return err
		}
		if err := publish(outbox); err != nil {
			return err
		}
		forwarding, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error, 1)
		go func() {
			ended <- store.Forward(forwarding, driver.Subscribe{Outbox: outbox, Subscription: "jobs", Holder: "test", Lease: time.Minute}, queue)
		}()
		env.Eventually("the message is a job", func() bool {
			found, err := store.FindJobs(ctx, admin.Find{In: queue, Key: j.UniqueKey, Limit: 2})
			noError(t, err)
			return len(found) > 0 && string(found[0].Message.Payload) == string(j.Payload)
		})
		stop()
		return <-ended
	}
	ways := []struct {
		name string
		twin bool // it also looks for a job with its unique key
		in   func(queue string, j penstock.NewJob) error
	}{
		{"Enqueue", true, func(queue string, j penstock.NewJob) error { _, err := store.Queue(queue).Enqueue(ctx, j); return err }},
		{"Enqueue of several", true, func(queue string, j penstock.NewJob) error {
			_, err := store.Queue(queue).Enqueue(ctx, j, penstock.NewJob{Group: "another"})
			return err
		}},
		{"EnqueueTx", true, func(queue string, j penstock.NewJob) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { _, err := store.Queue(queue).EnqueueTx(ctx, tx, j); return err })
		}},
		{"buffer", true, func(queue string, j penstock.NewJob) error {
			return pgx.BeginFunc(ctx, postgres.NewBuffered(pool, penstock.BufferOptions{}), func(tx pgx.Tx) error {
				_, err := tx.(*postgres.BufferedTx).Enqueue(ctx, store.Queue(queue), j)
				return err
			})
		}},
		{"writer", true, func(queue string, j penstock.NewJob) error {
			w := writing.New(store, writing.Options{})
			_, err := w.Enqueue(ctx, queue, j)
			return err
		}},
		{"enqueue", true, func(queue string, j penstock.NewJob) error {
			return sql("select penstock.enqueue($1, $2::text, unique_key => $3, on_conflict => nullif($4, ''), max_attempts => $5, timeout => $6, deadline => $7)",
				queue, string(j.Payload), j.UniqueKey, string(j.OnConflict), j.MaxAttempts, j.Timeout, j.Deadline)
		}},
		{"enqueue_many", true, func(queue string, j penstock.NewJob) error {
			return sql("select penstock.enqueue_many($1, array[$2], unique_keys => array[$3], on_conflict => nullif($4, ''), max_attempts => $5, timeout => $6, deadline => $7)",
				queue, string(j.Payload), j.UniqueKey, string(j.OnConflict), j.MaxAttempts, j.Timeout, j.Deadline)
		}},
		{"INSERT", false, func(queue string, j penstock.NewJob) error {
			return sql("insert into penstock."+pgx.Identifier{queue}.Sanitize()+" (key, payload, headers) values ($1, $2, $3::jsonb)", j.UniqueKey, j.Payload, headers(j))
		}},
		{"penstock enqueue", true, func(queue string, j penstock.NewJob) error {
			args := []string{"enqueue", queue, string(j.Payload), "--unique-key", j.UniqueKey, "--max-attempts", fmt.Sprint(j.MaxAttempts), "--timeout", j.Timeout.String(), "--deadline", j.Deadline.Format(time.RFC3339)}
			if j.OnConflict != "" {
				args = append(args, "--on-conflict", string(j.OnConflict))
			}
			d.must(args...)
			return nil
		}},
		{"file", true, func(queue string, j penstock.NewJob) error {
			d.must("enqueue", queue, "--file", file(map[string]any{"payload": string(j.Payload), "unique_key": j.UniqueKey, "on_conflict": j.OnConflict, "max_attempts": j.MaxAttempts, "timeout": j.Timeout.String(), "deadline": j.Deadline}))
			return nil
		}},
		{"schedule", true, func(queue string, j penstock.NewJob) error {
			if err := store.SetSchedule(ctx, penstock.Schedule{Queue: queue, Name: "s", Cron: "@yearly", Job: j}); err != nil {
				return err
			}
			_, err := store.RunSchedule(ctx, queue, "s")
			return err
		}},
		{"queue sink", true, func(queue string, j penstock.NewJob) error {
			return forwarded(queue, j, func(outbox string) error {
				return store.Publish(ctx, outbox, penstock.Message{Topic: "t", Payload: j.Payload, Headers: j.AllHeaders()})
			})
		}},
		{"serve", true, func(queue string, j penstock.NewJob) error {
			return forwarded(queue, j, func(outbox string) error {
				s, err := ingest.New(store, ingest.Options{Listen: "127.0.0.1:0"})
				if err != nil {
					return err
				}
				defer s.Close()
				body, _ := json.Marshal(map[string]any{"topic": "t", "payload": string(j.Payload), "headers": j.AllHeaders()})
				res, err := http.Post("http://"+s.Addr()+"/outboxes/"+strings.ReplaceAll(outbox, " ", "%20")+"/messages", "application/json", strings.NewReader(string(body)))
				if err == nil && res.StatusCode/100 != 2 {
					err = fmt.Errorf("%s", res.Status)
				}
				return err
			})
		}},
	}
	for i, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			queue := fmt.Sprint("ways ", i)
			noError(t, store.CreateQueue(ctx, queue, penstock.FIFO))
			j := penstock.NewJob{Payload: []byte("old"), UniqueKey: "u", MaxAttempts: 2, Timeout: 1500 * time.Millisecond, Deadline: deadline}
			noError(t, way.in(queue, j))
			j.Payload, j.OnConflict, j.MaxAttempts = []byte("new"), penstock.OnConflictReplace, 3
			if way.twin {
				noError(t, way.in(queue, j))
			} else { // the others find it
				_, err := store.Queue(queue).Enqueue(ctx, j)
				noError(t, err)
			}
			jobs, err := store.Queue(queue).Claim(ctx, driver.Claim{Jobs: 10, Lease: time.Minute})
			noError(t, err)
			if len(jobs) != 1 {
				t.Fatalf("%d jobs, want one: %v", len(jobs), jobs)
			}
			got := jobs[0]
			if string(got.Payload) != "new" || got.Key != "u" || got.MaxAttempts() != 3 || got.Timeout() != j.Timeout || !got.Deadline().Equal(deadline) {
				t.Errorf("%s of key %q with %d attempts, timeout %v and deadline %v, want %+v", got.Payload, got.Key, got.MaxAttempts(), got.Timeout(), got.Deadline(), j)
			}
		})
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
