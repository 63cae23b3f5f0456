package work

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/cli"
	"github.com/penstock/penstock/sink/webhook"
	"github.com/penstock/penstock/work"
)

// secretsVariable has the secrets that sign requests: a command line can be read by others.
const secretsVariable = "PENSTOCK_HTTP_SECRETS"

// unreachable is for how long a job rests whose endpoint cannot be reached. That is no attempt.
const unreachable = 5 * time.Second

// webhook is what sends the jobs: requests are signed and answers judged as those of the sink.
func (f *workFlags) webhook(log *slog.Logger) (*webhook.Sink, error) {
	c, err := webhook.ParseURL(f.http)
	if err == nil {
		for _, secret := range strings.Fields(strings.ReplaceAll(os.Getenv(secretsVariable), ",", " ")) {
			c.Secrets = append(c.Secrets, webhook.Secret(secret))
		}
		c.Concurrency = f.concurrency
		if f.timeout > 0 {
			c.Timeout = time.Duration(f.timeout)
			c.ConnectTimeout, c.ResponseTimeout = min(c.ConnectTimeout, c.Timeout), min(c.ResponseTimeout, c.Timeout)
		}
		err = c.Validate()
	}
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("--http: %w", err))
	}
	return webhook.Open(c, log)
}

// post is run for an endpoint.
func (e *execution) post(ctx context.Context, job penstock.Job) error {
	// One that comes again has the same id; the name tells it from those of other queues.
	m := penstock.Message{ID: fmt.Sprintf("%s-%d", strings.Map(printable, e.queue), job.ID), Key: job.Key, Topic: e.queue,
		Headers: job.Headers, Payload: job.Payload, CreatedAt: job.CreatedAt, Attempt: job.Attempt}
	err := errors.Join(e.http.Send(ctx, []penstock.Message{m})...)
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

// printable leaves what an id can hold.
func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return '_'
	}
	return r
}

var errNothingToRun = errors.New("--exec is missing: give the command to run, or with --http the URL to send each job to")
