package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
)

// filterFlags choose among messages as the filter of a subscription does.
type filterFlags struct{ topics, headers []string }

func (f *filterFlags) add(flags *pflag.FlagSet, verb string) {
	flags.StringArrayVar(&f.topics, "topic", nil, verb+" only topics of this pattern; may be repeated")
	flags.StringArrayVar(&f.headers, "header", nil, verb+" only what has this header, as NAME=VALUE; may be repeated")
}

func (f *filterFlags) read() (penstock.Filter, error) {
	filter := penstock.Filter{Topics: f.topics}
	for _, header := range f.headers {
		name, value, ok := strings.Cut(header, "=")
		if !ok {
			return filter, usage(fmt.Errorf("--header %q has no =: write NAME=VALUE, or NAME=* for any value", header))
		}
		if before, twice := filter.Headers[name]; twice && before != value {
			return filter, usage(fmt.Errorf("--header %s is given with two values: no message has both", name))
		}
		if filter.Headers == nil {
			filter.Headers = map[string]string{}
		}
		filter.Headers[name] = value
	}
	return filter, usage(filter.Validate())
}
