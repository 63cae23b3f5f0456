package measure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres/adopt"
)

// onPostgres is a setup on an empty schema of a real server, with a sink.
func onPostgres(t *testing.T, sink string) Setup {
	t.Helper()
	db := database(t)
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	db.SinkURL, db.Log, db.OpenSink = sink, log, func(url string) (driver.Sink, error) { return openSink(url, log) }
	return db
}

func TestProcessor(t *testing.T) {
	oneOfTwo := strings.Replace(testserver.RabbitMQURL(t), "@", "@127.0.0.1:1,", 1)
	db := onPostgres(t, oneOfTwo)
	r, err := Processor(t.Context(), ProcessorConfig{Setup: db, Rows: 300, Batch: 50, Duration: time.Minute, Payload: 200})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, rung := range r.Rungs {
		names = append(names, rung.Name)
		if rung.Messages != 300 || rung.MessagesPerSecond <= 0 || rung.QueryMS <= 0 || rung.PublishMS <= 0 || rung.UpdateMS <= 0 {
			t.Errorf("got %+v", rung)
		}
	}
	if got := strings.Join(names, ", "); got != "baseline, covering index, concurrent publish, batch update, 5 workers, batched publish" {
		t.Errorf("the rungs are %s", got)
	}
	if r.Ceiling <= 0 || r.Adopted <= 0 || r.Outbox <= 0 {
		t.Errorf("got %+v", r)
	}
	if r := r.Ratios; r.AdoptedOverBestRung <= 0 || r.AdoptedOverCeiling <= 0 || r.FactorOverBaseline <= 0 || r.OutboxOverCeiling <= 0 {
		t.Errorf("ratios %+v", r)
	}
	checkOutboxesGone(t, db)
}

// TestCeilingHasTheSameMessages: what the broker is measured with is what it gets from the table.
func TestCeilingHasTheSameMessages(t *testing.T) {
	db := onPostgres(t, testserver.RabbitMQURL(t))
	cfg := ProcessorConfig{Setup: db, Rows: 12, Batch: 1000, Duration: time.Minute, Payload: 200}
	p := newProcessor(newRig(db), cfg)
	want := p.orders(0, 12)
	if err := p.withTable(t.Context(), true, func(*session) (failed error) {
		table, forget, err := p.adopt(t.Context(), p.table, adopt.Config{Preset: "dotnet"})
		if err != nil {
			return err
		}
		defer func() { failed = errors.Join(failed, forget(t.Context())) }()
		src, err := table.Subscribe(t.Context(), driver.Subscribe{Holder: holder})
		if err != nil {
			return err
		}
		b, err := src.Fetch(t.Context(), driver.Limit{Messages: 100, Bytes: 1 << 20})
		if err != nil || len(b.Messages) != len(want) {
			return errors.Join(err, fmt.Errorf("%d messages, want %d", len(b.Messages), len(want)), src.Close(t.Context()))
		}
		for i, got := range b.Messages {
			if string(got.Payload) != string(want[i].Payload) || got.Topic != want[i].Topic || len(got.ID) != len(want[i].ID) || got.Key != "" || got.Headers != nil {
				t.Errorf("the table's is %+v %s, the ceiling's %+v %s", got, got.Payload, want[i], want[i].Payload)
			}
		}
		return src.Close(t.Context())
	}); err != nil {
		t.Fatal(err)
	}
}

// A message that was marked and is not in the queue is found.
func TestProcessorFindsLoss(t *testing.T) {
	db := onPostgres(t, testserver.RabbitMQURL(t))
	cfg := ProcessorConfig{Setup: db, Rows: 100, Batch: 50, Duration: time.Minute, Payload: 200}
	p := newProcessor(newRig(db), cfg)
	err := p.withTable(t.Context(), true, func(keeper *session) error {
		return p.withQueue(t.Context(), func(q *queue) error {
			r := ladder[len(ladder)-1]
			r.workers = 1
			result, err := p.process(t.Context(), r, q)
			if err != nil {
				return err
			}
			if err := p.marked(keeper, "", result.Messages+1); err == nil {
				t.Error("a row that is not marked was not missed")
			}
			return p.check(t.Context(), "", q, result.Messages+1)
		})
	})
	var wrong *CheckError
	if !errors.As(err, &wrong) || wrong.Check.Lost != 1 {
		t.Errorf("got %v, want a CheckError for 1 lost message", err)
	}
}

func TestProcessorInterrupted(t *testing.T) {
	db := onPostgres(t, testserver.RabbitMQURL(t))
	ctx, cancel := context.WithCancel(t.Context())
	db.Progress = func(text string) {
		if strings.Contains(text, "by hand") {
			cancel()
		}
	}
	if _, err := Processor(ctx, ProcessorConfig{Setup: db, Rows: 1000, Batch: 50, Duration: time.Minute, Payload: 200}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
