package format

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/descriptor"
)

// Binding is how a sink's protocol carries CloudEvents. Each sink has it in its Driver,
// for example rabbitmq.Driver.Binding.
type Binding = descriptor.Binding

// prefixOf is the prefix to use: chosen, or by default the first.
func prefixOf(b Binding, chosen string) (string, error) {
	if chosen == "" {
		return b.Prefixes[0], nil
	}
	if !slices.Contains(b.Prefixes, chosen) {
		return "", &penstock.FieldError{
			Field: "prefix", Problem: fmt.Sprintf("is %q, which consumers of %s do not know", chosen, b.Name),
			Hint: "leave it out, or write " + strings.Join(b.Prefixes, " or "),
		}
	}
	return chosen, nil
}

// reserved reports whether a header of that name would pass for an attribute.
func reserved(b Binding, name string) bool {
	for _, p := range b.Prefixes {
		if len(name) >= len(p) && strings.EqualFold(name[:len(p)], p) {
			return true
		}
	}
	return false
}
