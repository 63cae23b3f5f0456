package webhook

import "github.com/penstock/penstock/internal/driver"

// Driver is this sink for config's list.
var Driver = driver.Sink[Config]{
	Name: "webhook", Usage: "https://HOST/PATH", Schemes: []string{"https", "http"},
	Parse: ParseURL, Open: driver.Opens(Open),
	Binding: driver.Binding{Name: "webhook", Prefixes: []string{"ce-"}, DataContentType: driver.ContentType, Structured: driver.ContentType, Percent: true},
}
