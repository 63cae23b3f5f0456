package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/webhook"
	"github.com/penstock/penstock/work"
)

// unreachable is how long a job waits whose endpoint cannot be reached. That does not count as an
// attempt.
const unreachable = 5 * time.Second

// post is run for an endpoint.
func (e *execution) post(ctx context.Context, job penstock.Job) error {
	// A repeated request has the same id; the name distinguishes it from those of other queues.
	m := penstock.Message{ID: fmt.Sprintf("%s-%d", strings.Map(printable, e.queue), job.ID), Key: job.Key, Topic: e.queue,
		Headers: job.Headers, Payload: job.Payload, CreatedAt: job.CreatedAt, Attempt: job.Attempt}
	err := errors.Join(e.http.Send(ctx, []penstock.Message{m})...)
	if answer, ok := errors.AsType[*webhook.StatusError](err); ok && answer.Status == http.StatusTooManyRequests {
		if after, asked := penstock.RetryDelay(err); asked {
			return work.HoldGroup(after, answer.Error())
		}
	}
	if penstock.IsUnavailable(err) {
		after, asked := penstock.RetryDelay(err)
		if !asked {
			after = unreachable
		}
		e.log.Warn("the endpoint cannot be reached; the job rests, and no attempt is spent", "job", job.ID, "in", after, "err", err)
		return work.Snooze(after)
	}
	return err
}

// printable removes characters that an id cannot hold.
func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return '_'
	}
	return r
}
