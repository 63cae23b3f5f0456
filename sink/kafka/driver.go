package kafka

import "github.com/penstock/penstock/internal/driver"

// Driver is this sink for config's list.
var Driver = driver.Sink[Config]{
	Name: "kafka", Usage: "kafka://HOST", Schemes: []string{"kafka", "kafkas"},
	Parse: ParseURL, Open: driver.Opens(Open),
	Binding:  driver.Headers("kafka", "ce_"),
	ReadBack: readBack,
}
