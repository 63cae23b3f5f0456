// Package otlp sends spans to a collector, configured by OpenTelemetry's environment variables.
package otlp

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/penstock/penstock"
)

// Start makes the process record spans and send them over HTTP, if OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set. Otherwise it does nothing. OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME,
// OTEL_EXPORTER_OTLP_HEADERS, …_TIMEOUT and the variables of the SDK apply as usual. stop sends the last
// spans and waits up to 5 s. Start returns an error for an endpoint or a protocol that it cannot use.
func Start(ctx context.Context) (stop func() error, err error) {
	stop = func() error { return nil }
	endpoint := of("ENDPOINT")
	if endpoint == "" || os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return stop, nil
	}
	if os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		endpoint = strings.TrimSuffix(endpoint, "/") + "/v1/traces"
	}
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" {
		return stop, penstock.WithHint(fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT is not a URL"), "as in http://localhost:4318")
	}
	if p := cmp.Or(of("PROTOCOL"), "http/protobuf"); p != "http/protobuf" {
		return stop, penstock.WithHint(fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q", p), "use http/protobuf, usually at port 4318")
	}
	exporter, err := otlptrace.New(ctx, newClient(endpoint))
	if err != nil {
		return stop, fmt.Errorf("traces: %w", err)
	}
	who, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "penstock")), resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return stop, fmt.Errorf("traces: %w", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(who))
	otel.SetTracerProvider(provider)
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return provider.Shutdown(ctx)
	}, nil
}

// of is the value of a variable for traces, or else for all signals.
func of(name string) string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), os.Getenv("OTEL_EXPORTER_OTLP_"+name))
}

// client posts spans. OpenTelemetry's own client includes gRPC, which makes the program larger by a
// quarter.
type client struct {
	endpoint string
	header   http.Header
	http     http.Client
}

func newClient(endpoint string) *client {
	c := &client{endpoint: endpoint, header: http.Header{"Content-Type": {"application/x-protobuf"}}, http: http.Client{Timeout: 10 * time.Second}}
	if ms, err := strconv.Atoi(of("TIMEOUT")); err == nil && ms > 0 {
		c.http.Timeout = time.Duration(ms) * time.Millisecond
	}
	for pair := range strings.SplitSeq(of("HEADERS"), ",") {
		name, value, is := strings.Cut(pair, "=")
		if value, err := url.PathUnescape(strings.TrimSpace(value)); is && err == nil {
			c.header.Set(strings.TrimSpace(name), value)
		}
	}
	return c
}

// Start implements otlptrace.Client.
func (c *client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *client) Stop(context.Context) error { c.http.CloseIdleConnections(); return nil }

// UploadTraces implements otlptrace.Client. A TracesData has the form of the request that collectors take.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header = c.header.Clone()
	answer, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 200))
		return fmt.Errorf("the collector answered %s: %q", answer.Status, text)
	}
	_, err = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20))
	return err
}
