// Package forward is shared by stores that make jobs of messages within the database: the loop,
// and the form of a job.
package forward

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// Headers of a job in addition to those of its message.
const (
	HeaderMessageID = "penstock-message-id"
	HeaderTopic     = "penstock-topic" // if the message has one
	// HeaderRefused explains why the headers of a message that are options of a job were left out.
	HeaderRefused = "penstock-refused-options"
)

// Subscription is a subscription that one goroutine forwards.
type Subscription interface {
	// Fetch returns the messages to move next, or an empty batch if there are none. After an error of
	// Move it returns the same messages again, and possibly more.
	Fetch(ctx context.Context, limit driver.Limit) (driver.Batch, error)
	// Move makes jobs of the messages and settles them, in one transaction.
	Move(ctx context.Context, batch driver.Batch) error
	// Renew extends the lease.
	Renew(ctx context.Context) error
	// Maintain does the outbox's maintenance.
	Maintain(ctx context.Context) error
}

// A batch is a transaction: large enough to be cheap, small enough to fit into memory easily.
var limit = driver.Limit{Messages: 1000, Bytes: 8 << 20}

const (
	afterError    = time.Second
	maintainEvery = time.Second
	longestPause  = 50 * time.Millisecond
)

// From subscribes and runs what over makes of the source, until ctx ends. It returns nil then. check is an error if the queue cannot be written to.
func From(ctx context.Context, store driver.Store, req driver.Subscribe, check func() error, log *slog.Logger, over func(driver.Source) (s Subscription, lease time.Duration)) error {
	if req.Ephemeral {
		return &penstock.FieldError{Field: "subscription", Problem: "is ephemeral", Hint: "forwarding needs a cursor"}
	}
	err := check()
	if err != nil {
		return ended(ctx, err)
	}
	src, err := store.Subscribe(ctx, req)
	if err != nil {
		return ended(ctx, err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = src.Close(closing) // the lease also expires
	}()
	s, lease := over(src)
	return Run(ctx, s, lease, log)
}

// Run moves messages until ctx ends, and then returns nil. It returns an error that waiting cannot
// fix, and logs others.
func Run(ctx context.Context, s Subscription, lease time.Duration, log *slog.Logger) error {
	p := pump{Subscription: s, lease: lease, renewed: time.Now()}
	for {
		pause, err := p.step(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && permanent(err):
			return begunError{err}
		case err != nil:
			log.Warn("cannot forward messages; trying again", "err", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// ended is err, or nil once ctx has ended. Forward also promises this for its first steps.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// begunError is the error of a run that had begun.
type begunError struct{ error }

func (e begunError) Unwrap() error { return e.error }

// Begun reports whether err comes from a run that had begun. Other errors of Forward come from its
// start.
func Begun(err error) bool {
	_, begun := errors.AsType[begunError](err)
	return begun
}

func permanent(err error) bool {
	reasons := []error{penstock.ErrNoOutbox, penstock.ErrNoQueue, penstock.ErrNoSubscription, penstock.ErrFenced, penstock.ErrClosed}
	return slices.ContainsFunc(reasons, func(reason error) bool { return errors.Is(err, reason) })
}

// pump is one run.
type pump struct {
	Subscription
	lease      time.Duration
	silence    time.Time // of the last message
	renewed    time.Time // when the lease was last extended
	maintained time.Time
}

// step moves one batch and returns how long to wait before the next one.
func (p *pump) step(ctx context.Context) (pause time.Duration, err error) {
	if time.Since(p.maintained) > maintainEvery {
		p.maintained = time.Now()
		if err := p.Maintain(ctx); err != nil {
			return afterError, err
		}
	}
	if time.Since(p.renewed) > p.lease/3 { // also in a long backlog: moving the cursor does not extend the lease in every store
		if err := p.Renew(ctx); err != nil {
			return afterError, err
		}
		p.renewed = time.Now()
	}
	batch, err := p.Fetch(ctx, limit)
	if err != nil {
		return afterError, err
	}
	if len(batch.Messages) > 0 {
		if err := p.Move(ctx, batch); err != nil {
			return afterError, err
		}
		p.silence = time.Now()
		return 0, nil
	}
	return min(max(time.Since(p.silence)/8, time.Millisecond), longestPause), nil
}

// Jobs are the jobs of messages: with their keys, headers and payloads, and two more headers. Options that no job can have are
// left out: an outbox takes every header, and a message that is not moved would stop those behind it.
func Jobs(messages []penstock.Message) []penstock.NewJob {
	jobs := make([]penstock.NewJob, len(messages))
	for i := range messages {
		m := &messages[i]
		headers := make(map[string]string, len(m.Headers)+2)
		maps.Copy(headers, m.Headers)
		headers[HeaderMessageID] = m.ID
		if m.Topic != "" {
			headers[HeaderTopic] = m.Topic
		}
		jobs[i] = penstock.NewJob{Payload: m.Payload, Key: m.Key, Headers: headers}
		refuse(&jobs[i])
	}
	return jobs
}

// refuse leaves options out if a job cannot have them. Its kind stays, which says who handles it.
func refuse(j *penstock.NewJob) {
	for name := range j.Headers {
		if !penstock.IsJobOption(name) {
			continue
		}
		if err := j.Validate(); err != nil {
			leaveOptions(j, err)
		}
		return
	}
}

func leaveOptions(j *penstock.NewJob, err error) {
	maps.DeleteFunc(j.Headers, func(name, _ string) bool { return name != penstock.HeaderKind && penstock.IsJobOption(name) })
	if j.Validate() != nil {
		delete(j.Headers, penstock.HeaderKind)
	}
	j.Headers[HeaderRefused] = err.Error()
}

// Enqueue writes jobs. Only the database knows whether the queue has the barriers that a job names: of one that it refuses, the
// options are left out. So jobs with barriers are written in a savepoint, and one by one if one of them is refused.
func Enqueue(jobs []penstock.NewJob, write func(jobs []penstock.NewJob) error, savepoint func(call func() error) error, refused func(error) bool) error {
	if !slices.ContainsFunc(jobs, func(j penstock.NewJob) bool {
		return j.Headers[penstock.HeaderHolds]+j.Headers[penstock.HeaderWaitsFor] != ""
	}) {
		return write(jobs)
	}
	try := func(jobs []penstock.NewJob) error { return savepoint(func() error { return write(jobs) }) }
	err := try(jobs)
	if err == nil || !refused(err) {
		return err
	}
	for i := range jobs {
		one := jobs[i : i+1]
		if err = try(one); err != nil && refused(err) {
			leaveOptions(&jobs[i], err)
			err = write(one)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
