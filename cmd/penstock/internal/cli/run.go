package cli

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/run"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/trace/otlp"
)

// errHurried is the cause of the end at the second signal.
var errHurried = errors.New("hurried")

// Run runs the parts that cfg describes. The first signal, or the end of ctx, drains it; the second signal ends it at
// once.
func (a *App) Run(ctx context.Context, cfg *config.Config, o run.Options) error {
	if a.Parts != nil {
		return a.Parts(ctx, cfg, o)
	}
	o.Stdout, o.Stderr, o.Database = a.Stdout, a.Stderr, a.Place()
	if results, ok := o.Stdout.(*terminal.Results); ok {
		o.Stdout = results.W // the commands themselves get a file
	}
	relays, err := run.New(ctx, cfg, o)
	if err != nil {
		return terminal.Usage(err)
	}
	defer relays.Close()
	log := o.Log
	defer context.AfterFunc(ctx, relays.Drain)()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stopListening := a.OnSignals(func() {
		log.Info("draining: waiting for messages and jobs in progress; a second signal stops at once")
		relays.Drain()
	}, func() {
		log.Warn("stopping at once: unconfirmed messages are left to the next relay, and commands are killed")
		cancel(errHurried)
	})
	defer stopListening()
	if err := relays.Run(ctx); errors.Is(err, errHurried) {
		return &terminal.ExitError{Code: terminal.ExitInterrupted, Err: err}
	} else if err != nil {
		return err
	}
	return nil
}

// Trace records spans until the verb ends, if OpenTelemetry's variables set where to send them.
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
	a.Later(stop)
	return nil
}
