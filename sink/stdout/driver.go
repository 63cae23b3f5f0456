package stdout

import "github.com/penstock/penstock/internal/descriptor"

// Driver describes this sink for the list in internal/drivers.
var Driver = descriptor.Sink[Config]{
	Name: "stdout", Usage: "stdout", Schemes: []string{"stdout", "-"},
	Parse: ParseURL, Open: descriptor.Opens(Open),
	// No protocol of the specification; it does as HTTP does, without its encoding.
	Binding: descriptor.Headers("stdout", "ce-"),
}
