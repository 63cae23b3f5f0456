package measure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/natsserver"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/sink/discard"
	"github.com/penstock/penstock/sink/kafka"
	"github.com/penstock/penstock/sink/rabbitmq"
	"github.com/penstock/penstock/sink/webhook"
)

// small is a setup that needs no server.
func small(t *testing.T, sink string) Setup {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	return Setup{
		Store: sqlitetest.New(t), Name: "bench", SinkURL: sink, Log: log, Progress: func(text string) { t.Log(text) },
		OpenSink: func(url string) (driver.Sink, error) { return openSink(url, log) },
	}
}

func openSink(url string, log *slog.Logger) (driver.Sink, error) {
	switch scheme, _, _ := strings.Cut(url, ":"); scheme {
	case "discard":
		return discard.Open(discard.Config{}, log)
	case "amqp":
		cfg, err := rabbitmq.ParseURL(url)
		if err != nil {
			return nil, err
		}
		cfg.SetDefaults()
		return rabbitmq.Open(cfg, log)
	case "kafka":
		cfg, err := kafka.ParseURL(url)
		if err != nil {
			return nil, err
		}
		return kafka.Open(cfg, log)
	case "http":
		cfg, err := webhook.ParseURL(url)
		if err != nil {
			return nil, err
		}
		return webhook.Open(cfg, log)
	default:
		cfg, err := natsserver.Driver.Parse(url)
		if err != nil {
			return nil, err
		}
		return natsserver.Driver.Open(cfg, log)
	}
}

// checkOutboxesGone: a run drops its objects.
func checkOutboxesGone(t *testing.T, s Setup) {
	t.Helper()
	all, err := s.Store.Status(t.Context())
	if err != nil || len(all) > 0 {
		t.Errorf("outboxes are left: %v, %v", all, err)
	}
}

// forSinks runs an experiment with each sink and says who checks the arrivals.
func forSinks(t *testing.T, by map[string]string, run func(t *testing.T, s Setup, by string)) {
	for sink, by := range by {
		t.Run(sink, func(t *testing.T) {
			s := small(t, sink)
			run(t, s, by)
			checkOutboxesGone(t, s)
		})
	}
}

var checkedBy = map[string]string{"embedded": "consumer", "discard": "sink"}

func TestPoison(t *testing.T) {
	forSinks(t, checkedBy, func(t *testing.T, s Setup, _ string) {
		r, err := Poison(t.Context(), PoisonConfig{Setup: s, Messages: 2000, Payload: 200, Keys: 100, Poisoned: 2, Repeat: 2})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Ratios) != 2 || r.Ratio <= 0 || r.Attempts == 0 || r.Parked != 40 || r.ParkedKeys != 2 || r.DeadLetters != 0 {
			t.Errorf("got %+v", r)
		}
	})
}

// Also the order of each key, as Kafka's own client reads it.
func TestPoisonOnKafka(t *testing.T) {
	sink, stop, err := StartEmulator("kfake")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	s := small(t, sink)
	r, err := Poison(t.Context(), PoisonConfig{Setup: s, Messages: 2000, Payload: 200, Keys: 100, Poisoned: 2, Repeat: 1})
	if err != nil || r.Ratio <= 0 || r.Parked != 40 {
		t.Errorf("got %+v, %v", r, err)
	}
	checkOutboxesGone(t, s)
}

func TestRelayOnKafka(t *testing.T) {
	sink, stop, err := StartEmulator("kfake")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	s := small(t, sink)
	r, err := Relay(t.Context(), RelayConfig{Setup: s, Messages: 2000, Payload: 200, Keys: 100, Repeat: 1, Relays: 1, Rate: 1000, LatencyFor: 300 * time.Millisecond})
	if err != nil || r.Ratio <= 0 || r.LatencyMS == nil || r.LatencyMS.To != "consumer" {
		t.Errorf("got %+v, %v", r, err)
	}
	checkOutboxesGone(t, s)
}

func TestPark(t *testing.T) {
	forSinks(t, checkedBy, func(t *testing.T, s Setup, by string) {
		r, err := Park(t.Context(), ParkConfig{Setup: s, Messages: 2000, Payload: 200, Keys: 100, Repeat: 1, RetryMax: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if r.Ratio <= 0 || r.Refused == 0 || r.Parked != 2000 || r.Check != (Check{By: by}) {
			t.Errorf("got %+v", r)
		}
	})
}

func TestOutage(t *testing.T) {
	forSinks(t, checkedBy, func(t *testing.T, s Setup, by string) {
		r, err := Outage(t.Context(), shortOutage(s))
		if err != nil {
			t.Fatal(err)
		}
		if r.By != "sink unavailable" || r.Ceiling <= 0 || r.Backlog == 0 || r.AttemptsSpent != 0 || r.Check.By != by {
			t.Errorf("got %+v", r)
		}
	})
}

func shortOutage(s Setup) OutageConfig {
	return OutageConfig{
		Setup: s, Rate: 500, Writers: 8, Before: 200 * time.Millisecond, Outage: 400 * time.Millisecond,
		CeilingOf: 1000, Payload: 200,
	}
}

func TestOutageOfConnections(t *testing.T) {
	s := small(t, testserver.RabbitMQURL(t))
	s.Name = fmt.Sprintf("bench_%08x", rand.Uint32()) // the queues are named after it
	r, err := Outage(t.Context(), shortOutage(s))
	if err != nil {
		t.Fatal(err)
	}
	if r.By != "connections reset" || r.Ceiling <= 0 || r.Backlog == 0 || r.AttemptsSpent != 0 || r.Check.By != "consumer" {
		t.Errorf("got %+v", r)
	}
	checkOutboxesGone(t, s)
}

// forgetful confirms one message that it does not send.
type forgetful struct{ *natsserver.Sink }

func (s forgetful) Send(ctx context.Context, msgs []penstock.Message) []error {
	kept := slices.DeleteFunc(slices.Clone(msgs), func(m penstock.Message) bool {
		n, ok := number(m.Payload)
		return ok && n == 777
	})
	errs := s.Sink.Send(ctx, kept)
	if len(kept) < len(msgs) {
		return nil
	}
	return errs
}

func TestLossIsFound(t *testing.T) {
	s := small(t, "embedded")
	open := s.OpenSink
	s.OpenSink = func(url string) (driver.Sink, error) {
		sink, err := open(url)
		if err != nil {
			return nil, err
		}
		return forgetful{sink.(*natsserver.Sink)}, nil
	}
	_, err := Poison(t.Context(), PoisonConfig{Setup: s, Messages: 1000, Payload: 200, Keys: 10, Poisoned: 1, Repeat: 1})
	var wrong *CheckError
	if !errors.As(err, &wrong) || wrong.Check.Lost != 1 {
		t.Errorf("got %v, want a CheckError for 1 lost message", err)
	}
	checkOutboxesGone(t, s)
}
