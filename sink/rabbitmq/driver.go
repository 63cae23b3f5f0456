package rabbitmq

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/penstock/penstock/internal/descriptor"
)

// Driver describes this sink for the list in internal/drivers.
var Driver = descriptor.Sink[Config]{
	Name: "rabbitmq", Usage: "amqp://HOST", Schemes: []string{"amqp", "amqps"},
	Parse: ParseURL, Open: descriptor.Opens(Open),
	// There is no binding for AMQP 0-9-1. The one for AMQP 1.0 fits: RabbitMQ
	// turns headers and content_type into application-properties and
	// content-type for consumers that speak 1.0. It allows two separators and
	// prefers the underscore, as does Spring AMQP; Knative's draft of a RabbitMQ
	// binding has ce-.
	Binding:  descriptor.Headers("rabbitmq", "cloudEvents_", "cloudEvents:", "ce-"),
	ReadBack: readBack,
	Reach:    reach,
}

// reach connects and logs in. It does not create the queue of declare_queue.
func reach(ctx context.Context, c Config, log *slog.Logger) error {
	c.SetDefaults()
	c.DeclareQueue = ""
	conn, err := connect(ctx, &c, log)
	if err != nil {
		return err
	}
	defer conn.close(goodbye)
	if reason := conn.blockedReason(); reason != "" {
		return fmt.Errorf("the broker has blocked publishers: %s", reason)
	}
	return nil
}
