package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
)

// Headers that Forward adds to a job.
const (
	HeaderMessageID = "penstock-message-id"
	HeaderTopic     = "penstock-topic" // if the message has one
)

// Forward makes a job of every message of a subscription, in a queue of the same
// database, until ctx ends: then it returns nil. Jobs and cursor are written in one
// transaction, so each message becomes exactly one job, in order, however often
// Forward dies. A job has its message's key, headers and payload, and two headers more.
//
// It connects again by itself. It returns an error only for what that cannot
// cure: ErrNoOutbox, ErrNoQueue, ErrNoSubscription, ErrFenced, or a *HeldError at
// the start.
func Forward(ctx context.Context, store *Store, req penstock.Subscribe, queue string) error {
	if req.Ephemeral {
		return &penstock.FieldError{Field: "subscription", Problem: "is ephemeral", Hint: "forwarding needs a cursor"}
	}
	if err := store.hasQueue(ctx, queue); err != nil {
		return err
	}
	source, err := store.Subscribe(ctx, req)
	if err != nil {
		return err
	}
	src := source.(*Source)
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = src.Close(closing) // the lease ends by itself, too
	}()
	f := forwarding{src: src, queue: NewQueue(store.schema, queue)}
	for {
		wait, err := f.step(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && f.permanent(err):
			return err
		case err != nil:
			store.log.Warn("cannot forward messages; trying again", "outbox", req.Outbox, "queue", queue, "err", err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// forwarding is one call of Forward, in one goroutine.
type forwarding struct {
	src        *Source
	queue      *Queue
	silence    time.Time // when there was a message last
	written    time.Time // when the cursor was, and with it the lease
	maintained time.Time
}

func (f *forwarding) permanent(err error) bool {
	for _, reason := range []error{penstock.ErrNoOutbox, penstock.ErrNoQueue, penstock.ErrNoSubscription, penstock.ErrFenced, penstock.ErrClosed} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// step forwards one batch and says how long to wait before the next one.
func (f *forwarding) step(ctx context.Context) (wait time.Duration, err error) {
	const afterError = time.Second
	if time.Since(f.maintained) > time.Second {
		f.maintained = time.Now()
		if err := f.src.store.Maintain(ctx, f.src.req.Outbox); err != nil {
			return afterError, err
		}
	}
	batch, err := f.src.Fetch(ctx, penstock.Limit{Messages: 1000, Bytes: 8 << 20})
	if err != nil {
		return afterError, err
	}
	if len(batch.Messages) > 0 {
		if err := f.move(ctx, batch); err != nil {
			return afterError, err
		}
		f.silence, f.written = time.Now(), time.Now()
		return 0, nil
	}
	if time.Since(f.written) > f.src.req.Lease/3 {
		if err := f.src.Renew(ctx); err != nil {
			return afterError, err
		}
		f.written = time.Now()
	}
	return min(max(time.Since(f.silence)/8, time.Millisecond), 50*time.Millisecond), nil
}

// move enqueues a batch and settles it, in one transaction of the connection on which
// the source writes its cursor. After an error the session is given up, so that the
// source goes back to the cursor that is durable.
func (f *forwarding) move(ctx context.Context, batch penstock.Batch) error {
	sess, err := f.src.session(ctx)
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, sess.write, func(tx pgx.Tx) error {
		if _, err := f.queue.write(ctx, tx, jobsOf(batch.Messages)); err != nil {
			return err
		}
		return f.src.Settle(ctx, penstock.Settled{Batch: batch})
	})
	if err != nil {
		sess.kill()
	}
	return err
}

func jobsOf(messages []penstock.Message) []penstock.NewJob {
	jobs := make([]penstock.NewJob, len(messages))
	for i := range messages {
		m := &messages[i]
		headers := make(map[string]string, len(m.Headers)+2)
		for name, value := range m.Headers {
			headers[name] = value
		}
		headers[HeaderMessageID] = m.ID
		if m.Topic != "" {
			headers[HeaderTopic] = m.Topic
		}
		jobs[i] = penstock.NewJob{Payload: m.Payload, Key: m.Key, Headers: headers}
	}
	return jobs
}
