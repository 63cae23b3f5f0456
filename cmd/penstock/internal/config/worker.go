package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/webhook"
)

// Worker runs a command, or sends a request, for each job of a queue; see penstock work.
type Worker struct {
	Queue string `yaml:"queue"`
	// Exec is a command for the shell, and HTTP the URL to which jobs are sent: one of them is set.
	Exec string `yaml:"exec"`
	HTTP URL    `yaml:"http"`
	// HTTPSecrets sign the requests.
	HTTPSecrets []webhook.Secret `yaml:"http_secrets"`
	// Groups whose jobs it takes; none means jobs without a group.
	Groups    []string `yaml:"groups"`
	AllGroups bool     `yaml:"all_groups"`
	// Kinds of jobs it has a handler for, '' among them for the jobs without one. None means that it takes all jobs.
	Kinds []string `yaml:"kinds"`
	// Concurrency is how many jobs run at a time; 0 means the number of CPUs.
	Concurrency int           `yaml:"concurrency"`
	Lease       time.Duration `yaml:"lease"`
	// Timeout bounds a job, and DrainTimeout the running jobs once the worker drains.
	Timeout      Age    `yaml:"timeout"`
	DrainTimeout Age    `yaml:"drain_timeout"`
	Output       Output `yaml:"output"`
}

// Output sets where a command's stdout and stderr are written.
type Output string

// The outputs: the worker's own, or none.
const (
	Inherit Output = "inherit"
	Discard Output = "discard"
)

// UnmarshalText parses inherit and discard.
func (o *Output) UnmarshalText(b []byte) error { return oneOf(o, b, Inherit, Discard) }

// SetDefaults sets the fields that are zero.
func (w *Worker) SetDefaults() {
	w.Lease, w.Output = cmp.Or(w.Lease, 30*time.Second), cmp.Or(w.Output, Inherit)
	w.Timeout, w.DrainTimeout = cmp.Or(w.Timeout, unlimited), cmp.Or(w.DrainTimeout, unlimited)
}

// Validate returns the first setting that no worker can use.
func (w *Worker) Validate() error {
	var wrong []error
	bad := func(field, problem, hint string) {
		wrong = append(wrong, &penstock.FieldError{Field: field, Problem: problem, Hint: hint})
	}
	if err := penstock.ValidateQueueName(w.Queue); w.Queue == "" {
		bad("queue", "is missing", "name the queue whose jobs it runs")
	} else if err != nil {
		bad("queue", fmt.Sprintf("is %q", w.Queue), "name a queue")
	}
	switch {
	case w.Exec == "" && w.HTTP == "":
		bad("exec", "is missing", "give the command to run, or with http the URL to send each job to")
	case w.Exec != "" && w.HTTP != "":
		bad("exec", "is given together with http", "leave one of them out")
	case w.HTTP != "":
		if _, err := w.Webhook(); err != nil {
			bad("http", "cannot be used", err.Error())
		}
	case len(w.HTTPSecrets) > 0:
		bad("http_secrets", "is given without http", "leave it out: it signs requests")
	}
	if w.AllGroups && len(w.Groups) > 0 {
		bad("all_groups", "is given together with groups", "leave one of them out")
	}
	for i, kind := range w.Kinds {
		if err := penstock.ValidateKind(kind); err != nil {
			bad("kinds", fmt.Sprintf("has %q", kind), "use up to 100 bytes without control characters")
		} else if slices.Contains(w.Kinds[:i], kind) {
			bad("kinds", fmt.Sprintf("has %q twice", kind), "name each kind once")
		}
	}
	if w.Concurrency < 0 {
		bad("concurrency", fmt.Sprintf("is %d", w.Concurrency), "use 1 or more, or leave it out for the number of CPUs")
	}
	if w.Lease < 0 {
		bad("lease", "is negative", "use a time such as 30s")
	}
	return errors.Join(wrong...)
}

// Webhook sends the jobs: requests are signed and answers judged as by the sink.
func (w *Worker) Webhook() (webhook.Config, error) {
	c, err := webhook.ParseURL(w.HTTP.Reveal())
	if err != nil {
		return c, err
	}
	c.Secrets = append(c.Secrets, w.HTTPSecrets...)
	if w.Concurrency > 0 {
		c.Concurrency = w.Concurrency
	}
	if t := time.Duration(w.Timeout); t > 0 {
		c.Timeout = t
		c.ConnectTimeout, c.ResponseTimeout = min(c.ConnectTimeout, t), min(c.ResponseTimeout, t)
	}
	return c, c.Validate()
}
