package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/config"
)

// openStore opens the database that the flags, the environment or the
// configuration name.
func (a *app) openStore(ctx context.Context) (penstock.Store, error) {
	url, schema, err := a.database()
	if err != nil {
		return nil, err
	}
	a.stderr.hide(url)
	log, err := a.logger()
	if err != nil {
		return nil, err
	}
	slog.SetDefault(log) // where stores write their warnings
	if a.open != nil {
		return a.open(ctx, url, schema)
	}
	return config.OpenStore(ctx, url, schema)
}

// logger writes to stderr as --log-format and --log-level say.
func (a *app) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		return nil, usage(errors.New("--log-level: use debug, info, warn or error"))
	}
	options := &slog.HandlerOptions{Level: level}
	switch a.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(a.stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(a.stderr, options)), nil
	}
	return nil, usage(errors.New("--log-format: use text or json"))
}

// outboxCreator is what creating an outbox needs of a store.
type outboxCreator interface {
	CreateOutbox(ctx context.Context, name string) error
}

func createOutbox(ctx context.Context, store outboxCreator, name string, ifMissing bool) error {
	err := store.CreateOutbox(ctx, name)
	if ifMissing && errors.Is(err, penstock.ErrOutboxExists) {
		return nil
	}
	return err
}
