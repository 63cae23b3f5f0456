package cli

import (
	"context"

	"go.opentelemetry.io/otel"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/trace/otlp"
)

// Trace records spans until the verb ends, if OpenTelemetry's variables say where to send them.
func (a *App) Trace(ctx context.Context) error {
	log, err := a.Logger()
	if err != nil {
		return err
	}
	stop, err := otlp.Start(ctx)
	if err != nil {
		return terminal.Usage(err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces could not be sent", "err", err) }))
	a.Later(closer(stop))
	return nil
}

type closer func() error

func (c closer) Close() error { return c() }
