package sinktest_test

import (
	"log/slog"
	"testing"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/sink/discard"
)

// The test of a sink that has no broker. With one, Features list its abilities, and Drain reads it with the vendor's client.
func ExampleRun() {
	_ = func(t *testing.T) { // TestConformance
		sinktest.Run(t, sinktest.Harness{
			Features: sinktest.Features{InOrder: true},
			New: func(*testing.T) *sinktest.Destination {
				return &sinktest.Destination{
					Topics: []string{"orders.placed"},
					Open: func(t *testing.T, log *slog.Logger) driver.Sink {
						s, err := discard.Open(discard.Config{}, log)
						if err != nil {
							t.Fatal(err)
						}
						return s
					},
				}
			},
		})
	}
}
