package stdout

import "github.com/penstock/penstock/internal/descriptor"

// Config has no settings.
type Config = descriptor.NoSettings

// Driver describes this sink for the list in internal/drivers.
var Driver = descriptor.Sink[Config]{
	Name: "stdout", Usage: "stdout", Schemes: []string{"stdout", "-"},
	Parse: descriptor.Alone("stdout", "stdout:", "-"), Open: descriptor.Opens(Open),
	// The specification has no binding for it. It is like the HTTP binding, without the
	// encoding.
	Binding: descriptor.Headers("stdout", "ce-"),
}
