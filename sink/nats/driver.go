package nats

import "github.com/penstock/penstock/internal/driver"

// Driver is this sink for config's list.
var Driver = driver.Sink[Config]{
	Name: "nats", Usage: "nats://HOST or embedded[:DIR]", Schemes: []string{"nats", "tls", "ws", "wss", "embedded"},
	Parse: ParseURL, Open: driver.Opens(Open),
	// NATS has no content type of its own; the binding keeps the attribute
	// among the others and declares structured mode by a header as in HTTP.
	Binding:  driver.Binding{Name: "nats", Prefixes: []string{"ce-"}, DataContentType: "ce-datacontenttype", Structured: "Content-Type", Percent: true},
	ReadBack: readBack,
}
