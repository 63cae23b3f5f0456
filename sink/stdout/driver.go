package stdout

import "github.com/penstock/penstock/internal/driver"

// Driver is this sink for config's list.
var Driver = driver.Sink[Config]{
	Name: "stdout", Usage: "stdout", Schemes: []string{"stdout", "-"},
	Parse: ParseURL, Open: driver.Opens(Open),
	// No protocol of the specification; it does as HTTP does, without its encoding.
	Binding: driver.Headers("stdout", "ce-"),
}
