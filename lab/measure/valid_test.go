package measure

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

func TestValid(t *testing.T) {
	amqp := Setup{SinkURL: "amqps://x"}
	for want, c := range map[string]any{
		"--duration is 1ms, expected 400ms or more":    new(with(DefaultChurn, func(c *ChurnConfig) { c.Duration = time.Millisecond })),
		"--batch is -1, expected 1 to 10000":           new(with(DefaultChurn, func(c *ChurnConfig) { c.Batch = -1 })),
		"--margin is -1ns":                             new(with(DefaultChurn, func(c *ChurnConfig) { c.Margin = -1 })),
		"before the duration is over":                  new(with(DefaultChurn, func(c *ChurnConfig) { c.Late = time.Hour })),
		"fifo or lifo":                                 new(with(DefaultFifoLifo, func(c *FifoLifoConfig) { c.Order = "random" })),
		"tx or carri":                                  new(with(DefaultFifoLifo, func(c *FifoLifoConfig) { c.Mode = "both" })),
		"--workers is -1, expected 1 or more":          new(with(DefaultFifoLifo, func(c *FifoLifoConfig) { c.Workers = -1 })),
		"no jobs":                                      new(with(DefaultFifoLifo, func(c *FifoLifoConfig) { c.Preload, c.Arrivals = 0, false })),
		"--duration is 1ms, expected 100ms or more":    new(with(DefaultFifoLifo, func(c *FifoLifoConfig) { c.Duration = time.Millisecond })),
		"--payload is -1, expected 0 to":               new(with(DefaultFifoLifo, func(c *FifoLifoConfig) { c.Payload = -1 })),
		"amqp://":                                      new(with(DefaultProcessor, func(c *ProcessorConfig) { c.Setup = Setup{SinkURL: "nats://x"} })),
		"--rows is -1":                                 new(with(DefaultProcessor, func(c *ProcessorConfig) { c.Setup, c.Rows = amqp, -1 })),
		"--batch is 20000, expected 1 to 10000":        new(with(DefaultProcessor, func(c *ProcessorConfig) { c.Setup, c.Batch = amqp, 20_000 })),
		"--payload is 2500, expected 26 to 2000":       new(with(DefaultProcessor, func(c *ProcessorConfig) { c.Setup, c.Payload = amqp, 2_500 })),
		"--payload is 25, expected 26 to":              new(with(DefaultProcessor, func(c *ProcessorConfig) { c.Setup, c.Payload = amqp, orderOverhead-1 })),
		"cannot be measured":                           new(with(DefaultQueue, func(c *QueueConfig) { c.Ops = []string{"peek"} })),
		"--batches is 0, expected 1 to 10000":          new(with(DefaultQueue, func(c *QueueConfig) { c.Batches = []int{1, 0} })),
		"--batches is 10001":                           new(with(DefaultQueue, func(c *QueueConfig) { c.Batches = []int{driver.MaxClaim + 1} })),
		"--workers is 0":                               new(with(DefaultQueue, func(c *QueueConfig) { c.Workers = []int{0} })),
		"--payload is 67108865, expected 0 to":         new(with(DefaultQueue, func(c *QueueConfig) { c.Payload = penstock.MaxPayloadBytes + 1 })),
		"--payload is 19, expected 20 to 67108864":     new(with(DefaultWebhook, func(c *WebhookConfig) { c.Payload = digits - 1 })),
		"--messages is 1000000000, expected 1 to 9999": new(with(DefaultPark, func(c *ParkConfig) { c.Messages = flowFrom })),
		"": new(with(DefaultProcessor, func(c *ProcessorConfig) { c.Setup = amqp })),
	} {
		if err := Valid(c); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}
