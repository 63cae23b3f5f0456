package otlp_test

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/trace"
	"github.com/penstock/penstock/trace/otlp"
	"github.com/penstock/penstock/work"
)

// collector accepts spans as an OpenTelemetry collector does.
type collector struct {
	*httptest.Server
	mu       sync.Mutex
	spans    map[string][]*tracepb.Span // by name
	resource string
	problems []string
}

func newCollector(t *testing.T) *collector {
	c := &collector{spans: map[string][]*tracepb.Span{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var got tracepb.TracesData
		if err = errors.Join(err, proto.Unmarshal(body, &got)); err != nil || r.Method != "POST" || r.URL.Path != "/v1/traces" ||
			r.Header.Get("Content-Type") != "application/x-protobuf" || r.Header.Get("Authorization") != "Bearer x y" {
			c.problems = append(c.problems, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, of := range got.ResourceSpans {
			c.resource = of.Resource.String()
			for _, scope := range of.ScopeSpans {
				for _, s := range scope.Spans {
					c.spans[s.Name] = append(c.spans[s.Name], s)
				}
			}
		}
	}))
	t.Cleanup(c.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL+"/")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x%20y")
	t.Setenv("OTEL_SERVICE_NAME", "shop")
	return c
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// once refuses each message the first time.
type once struct {
	refused map[string]bool
	took    func()
}

func (s *once) Send(_ context.Context, msgs []penstock.Message) []error {
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		if !s.refused[m.Key] {
			s.refused[m.Key], errs[i] = true, errors.New("not now")
		} else {
			s.took()
		}
	}
	return errs
}

func (*once) Close(context.Context) error { return nil }

// shop publishes a message and enqueues a job within a span, and another of each without, and runs them
// all.
func shop(t *testing.T) (logged string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stop, err := otlp.Start(ctx)
	must(t, err)
	store := sqlitetest.New(t)
	must(t, store.CreateOutbox(ctx, "orders"), store.CreateQueue(ctx, "mails", penstock.FIFO))
	producing, span := otel.Tracer("shop").Start(ctx, "order")
	given := map[string]string{"note": "kept"}
	must(t, store.Publish(ctx, "orders", penstock.Message{Key: "a", Topic: "t", Headers: trace.Inject(producing, given)}),
		store.Publish(ctx, "orders", penstock.Message{Key: "b", Topic: "t", Headers: trace.Inject(ctx, given)}))
	_, err = store.DriverQueue("mails").Enqueue(ctx, penstock.NewJob{Payload: []byte("1"), Headers: trace.Inject(producing, nil)}, penstock.NewJob{Payload: []byte("2")})
	must(t, err)
	span.End()
	if len(given) != 1 {
		t.Errorf("the caller's headers were changed: %v", given)
	}

	var r *relay.Relay
	left := 2
	sink := &once{refused: map[string]bool{}, took: func() {
		if left--; left == 0 {
			r.Drain()
		}
	}}
	r, err = relay.New(store, "orders", "billing", sink, relay.Options{Limits: relay.Limits{RetryMin: time.Millisecond, Senders: 1},
		Observer: trace.Relay("orders", "billing", &relay.Counters{}), Logger: slog.New(slog.DiscardHandler)})
	must(t, err, r.Run(ctx))

	var log strings.Builder
	working, enough := context.WithCancel(ctx)
	jobs := 0
	err = work.Run(working, store.DriverQueue("mails"), func(ctx context.Context, job penstock.Job) error {
		slog.New(trace.LogHandler(slog.NewJSONHandler(&log, nil))).With("a", 1).InfoContext(ctx, "mailing", "job", string(job.Payload))
		_, span := otel.Tracer("shop").Start(trace.Extract(context.Background(), job.Headers), "smtp "+string(job.Payload))
		span.End()
		if jobs++; jobs == 2 {
			enough()
		}
		return nil
	}, work.Options{Concurrency: 1, Middleware: []func(work.Handler) work.Handler{trace.Worker("mails")}, Logger: slog.New(slog.DiscardHandler)})
	must(t, err, stop())
	return log.String()
}

// A producer's span is the parent of the message's sends and of the job's run. The run's span is the parent of the
// handler's spans.
func TestSpansReachTheCollector(t *testing.T) {
	c := newCollector(t)
	log := shop(t)
	order, sent, ran, mailed := c.spans["order"], c.spans["send orders/billing"], c.spans["run mails"], c.spans["smtp 1"]
	if len(order) != 1 || len(sent) != 2 || len(ran) != 1 || len(mailed) != 1 || len(c.problems) > 0 {
		t.Fatalf("%d, %d, %d, %d spans; %q", len(order), len(sent), len(ran), len(mailed), c.problems)
	}
	for _, s := range []*tracepb.Span{sent[0], sent[1], ran[0]} {
		if string(s.TraceId) != string(order[0].TraceId) || string(s.ParentSpanId) != string(order[0].SpanId) || s.StartTimeUnixNano > s.EndTimeUnixNano {
			t.Errorf("%s is no child of the producer's span: %v", s.Name, s)
		}
	}
	if string(mailed[0].ParentSpanId) != string(ran[0].SpanId) {
		t.Errorf("the job's headers do not lead on from its run: %v", mailed[0])
	}
	if sent[0].Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || sent[0].Status.GetMessage() != "not now" || sent[1].Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("the first sending was refused, the second was not: %v, %v", sent[0].Status, sent[1].Status)
	}
	text := sent[1].String() + ran[0].String() + c.resource
	for _, want := range []string{"penstock.subscription", "penstock.queue", "penstock.attempt", "penstock.commit_to_confirm_seconds", "penstock.enqueue_to_start_seconds", `"shop"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing in %s", want, text)
		}
	}
	lines := strings.Split(strings.TrimSpace(log), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"trace_id":"`+hex.EncodeToString(order[0].TraceId)+`"`) || !strings.Contains(lines[0], `"span_id":"`+hex.EncodeToString(ran[0].SpanId)+`"`) || strings.Contains(lines[1], "trace_id") {
		t.Errorf("the log: %s", log)
	}
}

// The standard variables decide what is recorded.
func TestSampler(t *testing.T) {
	c := newCollector(t)
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	shop(t)
	if len(c.spans) > 0 {
		t.Errorf("spans of a producer who samples none: %v", c.spans)
	}
}

func TestVariables(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	if _, err := otlp.Start(t.Context()); err != nil {
		t.Errorf("without an endpoint there is nothing to refuse: %v", err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317")
	if _, err := otlp.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "http/protobuf") {
		t.Errorf("of gRPC: %v", err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318")
	if _, err := otlp.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "not a URL") {
		t.Errorf("of an address: %v", err)
	}
}
