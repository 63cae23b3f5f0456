package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/metrics"
)

// MetricsFlags set where to serve metrics, and for how many groups.
type MetricsFlags struct {
	listen string
	groups int
	flags  *pflag.FlagSet
}

// Add adds the flags. listen is the default address of the metrics.
func (f *MetricsFlags) Add(flags *pflag.FlagSet, listen string) {
	f.flags = flags
	flags.StringVar(&f.listen, "metrics-listen", listen, "serve metrics at this `address`, as in 127.0.0.1:9464, with /healthz and /readyz")
	flags.IntVar(&f.groups, "metrics-groups", 0, "also export metrics of this `number` of groups of each queue, the first by name")
}

// Set replaces the file's settings with the given flags.
func (f *MetricsFlags) Set(m *config.Metrics) error {
	if f.flags.Changed("metrics-listen") {
		m.Listen = f.listen
	}
	if f.flags.Changed("metrics-groups") {
		m.Groups = f.groups
	}
	if wrong := (*penstock.FieldError)(nil); errors.As(m.Validate(), &wrong) {
		wrong.Field = "--metrics-" + wrong.Field
		return terminal.Usage(wrong)
	}
	return nil
}

// New makes metrics according to the flags; o has the rest.
func (f *MetricsFlags) New(o metrics.Options) (*metrics.Metrics, error) {
	given := config.Metrics{Listen: f.listen}
	err := f.Set(&given)
	o.Groups = given.Groups
	return metrics.New(o), err
}

// Serve serves them until the verb ends, if an address is given.
func (f *MetricsFlags) Serve(a *App, m *metrics.Metrics) error {
	if f.listen == "" {
		return nil
	}
	server, err := m.Serve(f.listen)
	if err == nil {
		a.Later(server.Close)
	}
	return err
}

// FilterFlags choose messages as the filter of a subscription does.
type FilterFlags struct{ topics, headers []string }

func (f *FilterFlags) Add(flags *pflag.FlagSet, verb string) {
	flags.StringArrayVar(&f.topics, "topic", nil, verb+" only topics of this `pattern`; may be repeated")
	flags.StringArrayVar(&f.headers, "header", nil, verb+" only messages with this header, as `name=value`; may be repeated")
}

func (f *FilterFlags) Read() (penstock.Filter, error) {
	headers, err := ReadHeaders(f.headers, "NAME=VALUE, or NAME=* for any value")
	filter := penstock.Filter{Topics: f.topics, Headers: headers}
	if err != nil {
		return filter, err
	}
	if slices.Contains(f.topics, "") { // as from a variable of a script that is not set: it would skip all messages with a topic
		return filter, terminal.Usage(errors.New("--topic is empty: give a pattern, or leave it out for any topic"))
	}
	return filter, terminal.Usage(filter.Validate())
}

// OrOff reads a flag that may be off; it is nil if the flag was not given.
func OrOff[T any](flags *pflag.FlagSet, name, text string, parse func(string) (T, error)) (*T, error) {
	var value T
	if !flags.Changed(name) {
		return nil, nil
	}
	if text != "off" && text != "0" {
		var err error
		if value, err = parse(text); err != nil {
			return nil, terminal.Usage(fmt.Errorf("--%s is %q: %w, or off", name, text, err))
		}
	}
	return &value, nil
}

// ParseStart reads --start.
func ParseStart(text string) (start config.Start, err error) {
	if err = start.UnmarshalText([]byte(text)); err != nil {
		err = terminal.Usage(fmt.Errorf("--start %w", err))
	}
	return start, err
}
