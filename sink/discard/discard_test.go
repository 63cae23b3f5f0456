package discard_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/sink/discard"
)

func TestConformance(t *testing.T) {
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

func TestSendDoesNotAllocate(t *testing.T) {
	s, _ := discard.Open(discard.Config{}, nil)
	msgs := make([]penstock.Message, 512)
	if n := testing.AllocsPerRun(100, func() { s.Send(context.Background(), msgs) }); n != 0 {
		t.Errorf("%v allocations per Send", n)
	}
}

func TestParseURL(t *testing.T) {
	for _, u := range []string{"discard", "discard:"} {
		if _, err := discard.Driver.Parse(u); err != nil {
			t.Errorf("%s: %v", u, err)
		}
	}
	if _, err := discard.Driver.Parse("discard://there"); err == nil {
		t.Error("an address was accepted")
	}
}
