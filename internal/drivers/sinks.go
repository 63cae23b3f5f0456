// Package drivers has the lists of stores and sinks, and opens them by their URLs. The program and
// the lab are built with it.
package drivers

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/descriptor"
	"github.com/penstock/penstock/internal/msk"
	"github.com/penstock/penstock/internal/natsserver"
	"github.com/penstock/penstock/internal/readback"
	"github.com/penstock/penstock/internal/redact"
	"github.com/penstock/penstock/internal/settings"
	"github.com/penstock/penstock/sink/amqp1"
	"github.com/penstock/penstock/sink/discard"
	"github.com/penstock/penstock/sink/format"
	"github.com/penstock/penstock/sink/pubsub"
	"github.com/penstock/penstock/sink/rabbitmq"
	"github.com/penstock/penstock/sink/redis"
	"github.com/penstock/penstock/sink/sns"
	"github.com/penstock/penstock/sink/sqs"
	"github.com/penstock/penstock/sink/stdout"
	"github.com/penstock/penstock/sink/webhook"
)

// sinks is the driver list. A new sink needs its folder and a line here.
var sinks = []sinkDriver{
	listed(rabbitmq.Driver),
	listed(natsserver.Driver),
	listed(msk.Driver),
	listed(redis.Driver),
	listed(sqs.Driver),
	listed(sns.Driver),
	listed(pubsub.Driver),
	listed(amqp1.Driver),
	listed(webhook.Driver),
	listed(stdout.Driver),
	listed(discard.Driver),
	listed(queueDriver),
}

// Sink is the configuration of one sink of the list. Its zero value has no sink.
type Sink struct {
	of     *sinkDriver
	config sinkConfig
}

// sinkConfig has the methods of every sink's configuration.
type sinkConfig interface {
	SetDefaults()
	Validate() error
}

// sinkDriver is a descriptor.Sink of any configuration.
type sinkDriver struct {
	name, usage string
	schemes     []string
	binding     descriptor.Binding
	readBack    func(url, dir, name string) (readback.Broker, error)
	blank       func() sinkConfig
	parse       func(url string) (sinkConfig, error)
	open        func(sinkConfig, *slog.Logger) (driver.Sink, error)
	reach       func(context.Context, sinkConfig, *slog.Logger) error // nil if there is nothing to reach
}

func listed[C any, P interface {
	*C
	sinkConfig
}](d descriptor.Sink[C]) sinkDriver {
	d.Binding.Name = d.Name
	listed := sinkDriver{
		name: d.Name, usage: d.Usage, schemes: d.Schemes, binding: d.Binding, readBack: d.ReadBack,
		blank: func() sinkConfig { return P(new(C)) },
		parse: func(url string) (sinkConfig, error) {
			c, err := d.Parse(url)
			return P(&c), err
		},
		open: func(c sinkConfig, log *slog.Logger) (driver.Sink, error) { return d.Open(*c.(P), log) },
	}
	if d.Reach != nil {
		listed.reach = func(ctx context.Context, c sinkConfig, log *slog.Logger) error { return d.Reach(ctx, *c.(P), log) }
	}
	return listed
}

// ParseSink turns the value of --sink into a sink with its defaults set:
// amqp://…, nats://…, embedded[:DIR], kafka://…, redis://…, sqs://…, sns://…, pubsub://…, amqp1://…, https://…, queue:NAME and so on. The fields of the sink's
// configuration are query parameters.
func ParseSink(url string) (Sink, error) {
	d, err := sinkOf(url)
	if err != nil {
		return Sink{}, err
	}
	c, err := d.parse(url)
	if err != nil {
		return Sink{}, &redactedError{fmt.Errorf("sink %s: %w", d.name, err)}
	}
	c.SetDefaults()
	return Sink{d, c}, nil
}

// sinkOf returns the driver for the URL's scheme.
func sinkOf(url string) (*sinkDriver, error) {
	for i := range sinks {
		d := &sinks[i]
		if s, _, _ := strings.Cut(Scheme(url), "?"); slices.Contains(d.schemes, s) {
			return d, nil
		}
	}
	return nil, &penstock.FieldError{Field: "sink", Problem: unknownScheme(url), Hint: "write " + OneOf(sinkUsages())}
}

// ReadBack returns the consumer of a sink, or nil if the messages of the sink cannot be read. dir
// is for a server's files, name for queues and streams.
func ReadBack(url, dir, name string) (readback.Broker, error) {
	d, err := sinkOf(url)
	if err != nil || d.readBack == nil {
		return nil, err
	}
	return d.readBack(url, dir, name)
}

// Open opens the configured sink. The broker need not be up.
func (s *Sink) Open(log *slog.Logger) (driver.Sink, error) {
	if s.of == nil {
		return nil, &penstock.FieldError{Field: "sink", Problem: "is not set", Hint: "set one of " + OneOf(SinkNames())}
	}
	return s.of.open(s.config, log)
}

// Reach connects to the sink's destination, and sends nothing. It returns false if there is nothing to connect
// to.
func (s *Sink) Reach(ctx context.Context, log *slog.Logger) (tried bool, err error) {
	if s.of == nil || s.of.reach == nil {
		return false, nil
	}
	if err = s.of.reach(ctx, s.config, log); err != nil {
		err = &redactedError{err}
	}
	return true, err
}

// Name of the configured sink in a file; empty if there is none.
func (s *Sink) Name() string {
	if s.of == nil {
		return ""
	}
	return s.of.name
}

// Binding is how the sink carries CloudEvents.
func (s *Sink) Binding() (b format.Binding) {
	if s.of != nil {
		b = s.of.binding
	}
	return b
}

// Config is the configuration, a pointer to the driver's struct, or nil if there is no sink.
func (s *Sink) Config() any { return s.config }

// SetDefaults fills in the unset fields.
func (s *Sink) SetDefaults() {
	if s.config != nil {
		s.config.SetDefaults()
	}
}

// Validate returns an error if the sink cannot be opened with this configuration.
func (s *Sink) Validate() error { return s.config.Validate() }

// SinkNamed is the sink of that name, to be configured.
func SinkNamed(name string) (Sink, bool) {
	i := slices.IndexFunc(sinks, func(of sinkDriver) bool { return of.name == name })
	if i < 0 {
		return Sink{}, false
	}
	return Sink{&sinks[i], sinks[i].blank()}, true
}

// SinkNames are the names of all sinks.
func SinkNames() []string {
	var names []string
	for _, d := range sinks {
		names = append(names, d.name)
	}
	return names
}

func sinkUsages() []string {
	var usages []string
	for _, d := range sinks {
		usages = append(usages, d.usage)
	}
	return usages
}

// redactedError keeps passwords out of a driver's error about its URL.
type redactedError struct{ err error }

func (e *redactedError) Error() string { return redact.Text(e.err.Error()) }

func (e *redactedError) Unwrap() error { return e.err }

// Scheme is the part before the colon, or everything if there is none.
func Scheme(url string) string {
	s, _, _ := strings.Cut(url, ":")
	return strings.ToLower(s)
}

// unknownScheme never quotes more than a scheme: a bare word may be a password in the wrong place.
func unknownScheme(url string) string {
	if s, _, ok := strings.Cut(url, "://"); ok && len(s) < 20 {
		return fmt.Sprintf("has the unknown scheme %q", s)
	}
	if url == "" {
		return "is empty"
	}
	return "is not a URL of a known kind"
}

// OneOf writes "a, b or c".
var OneOf = settings.OneOf
