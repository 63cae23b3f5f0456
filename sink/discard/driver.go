package discard

import "github.com/penstock/penstock/internal/driver"

// Driver is this sink for config's list.
var Driver = driver.Sink[Config]{
	Name: "discard", Usage: "discard", Schemes: []string{"discard"},
	Parse: ParseURL, Open: driver.Opens(Open),
	// As stdout.
	Binding: driver.Headers("discard", "ce-"),
}
