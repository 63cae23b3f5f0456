package discard

import "github.com/penstock/penstock/internal/descriptor"

// Driver describes this sink for the list in internal/drivers.
var Driver = descriptor.Sink[Config]{
	Name: "discard", Usage: "discard", Schemes: []string{"discard"},
	Parse: ParseURL, Open: descriptor.Opens(Open),
	// As stdout.
	Binding: descriptor.Headers("discard", "ce-"),
}
