package discard

import "github.com/penstock/penstock/internal/descriptor"

// Driver is this sink for config's list.
var Driver = descriptor.Sink[Config]{
	Name: "discard", Usage: "discard", Schemes: []string{"discard"},
	Parse: ParseURL, Open: descriptor.Opens(Open),
	// As stdout.
	Binding: descriptor.Headers("discard", "ce-"),
}
