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
	all := []error{
		wrong(w.Queue == "", "queue", "is missing", "name the queue whose jobs it runs"),
		wrong(w.Queue != "" && penstock.ValidateQueueName(w.Queue) != nil, "queue", fmt.Sprintf("is %q", w.Queue), "name a queue"),
		wrong(w.Exec == "" && w.HTTP == "", "exec", "is missing", "give the command to run, or with http the URL to send each job to"),
		wrong(w.Exec != "" && w.HTTP != "", "exec", "is given together with http", "leave one of them out"),
		wrong(w.Exec != "" && w.HTTP == "" && len(w.HTTPSecrets) > 0, "http_secrets", "is given without http", "leave it out: it signs requests"),
		wrong(w.AllGroups && len(w.Groups) > 0, "all_groups", "is given together with groups", "leave one of them out"),
		wrong(w.Concurrency < 0, "concurrency", fmt.Sprintf("is %d", w.Concurrency), "use 1 or more, or leave it out for the number of CPUs"),
		wrong(w.Lease != 0 && w.Lease < time.Second, "lease", fmt.Sprintf("is %s", w.Lease), "use at least a second, such as 30s"),
	}
	if w.Exec == "" && w.HTTP != "" {
		if _, err := w.Webhook(); err != nil {
			all = append(all, wrong(true, "http", "cannot be used", err.Error()))
		}
	}
	for i, kind := range w.Kinds {
		all = append(all,
			wrong(penstock.ValidateKind(kind) != nil, "kinds", fmt.Sprintf("has %q", kind), "use up to 100 bytes without control characters"),
			wrong(penstock.ValidateKind(kind) == nil && slices.Contains(w.Kinds[:i], kind), "kinds", fmt.Sprintf("has %q twice", kind), "name each kind once"))
	}
	return errors.Join(all...)
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
