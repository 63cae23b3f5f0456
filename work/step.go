package work

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// Step runs a part of a job that is not to run again once it has returned: a later attempt gets the result that the database keeps with the job.
//
//	receipt, err := work.Step(ctx, "charge", func(ctx context.Context) (string, error) { return charge(ctx, order) })
//
// ctx is the context that Run gave the handler, or one made from it. The name is 1 to penstock.MaxKindBytes bytes, and different for each step of a job. The
// result is kept as JSON in the job's report, whose limit of penstock.MaxReportBytes counts for all steps together. An error is not kept: Step returns it, and
// the next attempt runs the step again.
//
// If the process dies after fn has returned, and before the result is written, fn runs again. So an effect outside of the database happens at least once. Give
// the other side a key by which it knows the effect, the job's ID with the step's name for instance. For writes to the queue's database see StepTx.
func Step[T any](ctx context.Context, name string, fn func(ctx context.Context) (T, error)) (T, error) {
	job, q, err := reporter(ctx)
	if err != nil {
		return *new(T), err
	}
	result, text, err := step(ctx, job, q, name, fn)
	if err == nil && text != nil {
		job.steps.note(job, name, text)
	}
	return result, err
}

// StepTx is Step whose result is written within a transaction of the handler: in is what the queue's Reporter method returns for it. fn also writes through
// that transaction, and the handler commits it afterwards. So the step's writes take effect once: the attempt that commits them is the only one.
//
// If the transaction rolls back, the step has not run. In one attempt StepTx runs a step again only after that, and is refused otherwise.
func StepTx[T any](ctx context.Context, in driver.Reporter, name string, fn func(ctx context.Context) (T, error)) (T, error) {
	job, _, err := reporter(ctx)
	if err != nil {
		return *new(T), err
	}
	result, _, err := step(ctx, job, in, name, fn)
	return result, err
}

// writeStep is how long the result of a step may take to be written. The handler's context may have ended meanwhile.
const writeStep = 10 * time.Second

// step returns the result that is kept, or runs fn and writes its result, which it also returns as JSON.
func step[T any](ctx context.Context, job *jobContext, q driver.Reporter, name string, fn func(ctx context.Context) (T, error)) (result T, text json.RawMessage, err error) {
	if err := validStep(name); err != nil {
		return result, nil, err
	}
	kept, err := job.steps.of(job, name)
	if err == nil && kept != nil {
		err = json.Unmarshal(kept, &result)
	}
	if err != nil {
		return result, nil, penstock.WithHint(fmt.Errorf("the result that is kept of step %q: %w", name, err), "give the step another name if it returns another type")
	}
	if kept != nil {
		return result, nil, nil
	}
	if result, err = fn(ctx); err != nil {
		return result, nil, err
	}
	if text, err = json.Marshal(result); err == nil {
		var report []byte
		if report, err = json.Marshal(map[string]any{penstock.MemberSteps: map[string]json.RawMessage{name: text}}); err == nil {
			write, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeStep)
			defer cancel()
			err = q.Report(write, job.job.Lease, report)
		}
	}
	if err != nil {
		return *new(T), nil, fmt.Errorf("the result of step %q: %w", name, err)
	}
	return result, text, nil
}

func validStep(name string) error {
	if name == "" {
		return &penstock.FieldError{Field: "step", Problem: "has no name", Hint: "give each step of a job a different name"}
	}
	return penstock.ValidateText("step", name, penstock.MaxKindBytes)
}

// steps are the results of a job's steps by name: those of earlier attempts, and those that Step has written. The job's context has the lock.
type steps map[string]json.RawMessage

// of returns the result of a step; nil if it has not returned.
func (s *steps) of(job *jobContext, name string) (json.RawMessage, error) {
	job.mu.Lock()
	defer job.mu.Unlock()
	if *s == nil {
		var report map[string]json.RawMessage
		_ = json.Unmarshal(job.job.Report, &report) // another value has no steps
		if text, ok := report[penstock.MemberSteps]; ok {
			if err := json.Unmarshal(text, s); err != nil {
				return nil, err
			}
		}
		if *s == nil {
			*s = steps{}
		}
	}
	return (*s)[name], nil
}

func (s *steps) note(job *jobContext, name string, text json.RawMessage) {
	job.mu.Lock()
	defer job.mu.Unlock()
	(*s)[name] = text
}
