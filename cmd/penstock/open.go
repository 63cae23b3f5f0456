package main

import (
	"context"
	"errors"
	"fmt"
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

// openWith opens the database for verbs that need a store with what things are. The
// caller closes it.
func openWith[S any](ctx context.Context, a *app, things string) (with S, err error) {
	store, err := a.openStore(ctx)
	if err != nil {
		return with, err
	}
	with, ok := store.(S)
	if !ok {
		return with, errors.Join(usage(fmt.Errorf("this database's driver has no %s: use PostgreSQL or SQLite", things)), store.Close())
	}
	return with, nil
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
		options.ReplaceAttr = inSeconds
		return slog.New(slog.NewJSONHandler(a.stderr, options)), nil
	}
	return nil, usage(errors.New("--log-format: use text or json"))
}

// inSeconds names the unit of a duration, which JSON would show as a bare number of
// nanoseconds: after=1.5s becomes "after_seconds":1.5.
func inSeconds(_ []string, attr slog.Attr) slog.Attr {
	if attr.Value.Kind() == slog.KindDuration {
		return slog.Float64(attr.Key+"_seconds", attr.Value.Duration().Seconds())
	}
	return attr
}
