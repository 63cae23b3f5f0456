package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
)

// FilterFlags choose messages as the filter of a subscription does.
type FilterFlags struct{ topics, headers []string }

func (f *FilterFlags) Add(flags *pflag.FlagSet, verb string) {
	flags.StringArrayVar(&f.topics, "topic", nil, verb+" only topics of this `pattern`; may be repeated")
	flags.StringArrayVar(&f.headers, "header", nil, verb+" only messages with this header, as `name=value`; may be repeated")
}

func (f *FilterFlags) Read() (penstock.Filter, error) {
	filter := penstock.Filter{Topics: f.topics}
	for _, header := range f.headers {
		name, value, ok := strings.Cut(header, "=")
		if !ok {
			return filter, terminal.Usage(fmt.Errorf("--header %q has no =: write NAME=VALUE, or NAME=* for any value", header))
		}
		if before, twice := filter.Headers[name]; twice && before != value {
			return filter, terminal.Usage(fmt.Errorf("--header %s is given with two values: no message has both", name))
		}
		if filter.Headers == nil {
			filter.Headers = map[string]string{}
		}
		filter.Headers[name] = value
	}
	return filter, terminal.Usage(filter.Validate())
}

func ParseStart(from string) (driver.Start, error) {
	switch from {
	case "beginning":
		return driver.FromBeginning, nil
	case "now":
		return driver.FromNow, nil
	}
	return 0, terminal.Usage(fmt.Errorf("--from is %q: use beginning or now", from))
}
