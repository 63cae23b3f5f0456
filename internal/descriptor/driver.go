// Package descriptor describes sinks and stores: each driver has a variable Driver, and the lists in
// internal/drivers name those. Code that depends on the driver asks here, and never by its type or name.
package descriptor

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/readback"
)

// Sink is a kind of sink. C is its configuration: the struct below its name in a file.
type Sink[C any] struct {
	Name    string   // its key in the file
	Usage   string   // the value of --sink, for messages
	Schemes []string // the parts before the first colon of --sink
	Parse   func(url string) (C, error)
	Open    func(C, *slog.Logger) (driver.Sink, error)
	// Reach connects and logs in as Open's sink would, and sends nothing. It is nil if there is nothing
	// to reach.
	Reach func(context.Context, C, *slog.Logger) error
	// Binding is how it carries CloudEvents. Without prefixes it only sends unchanged messages.
	Binding Binding
	// ReadBack returns the consumer for a sink URL. It is nil if the messages of the sink cannot be
	// read. dir is for a server's files and may have to be created, name for queues and streams.
	ReadBack func(url, dir, name string) (readback.Broker, error)
}

// NoSettings is the configuration of a sink that has none.
type NoSettings struct{}

// SetDefaults does nothing.
func (*NoSettings) SetDefaults() {}

// Validate returns nil.
func (*NoSettings) Validate() error { return nil }

// Alone makes Sink.Parse of a sink that has no settings. These are its URLs.
func Alone(urls ...string) func(url string) (NoSettings, error) {
	return func(url string) (NoSettings, error) {
		if !slices.Contains(urls, url) {
			return NoSettings{}, fmt.Errorf("sink URL %q: write just %s, it has no settings", url, urls[0])
		}
		return NoSettings{}, nil
	}
}

// Opens makes Sink.Open from a function that returns the sink's own type.
func Opens[C any, S driver.Sink](open func(C, *slog.Logger) (S, error)) func(C, *slog.Logger) (driver.Sink, error) {
	return func(c C, log *slog.Logger) (driver.Sink, error) {
		sink, err := open(c, log)
		if err != nil {
			return nil, err // not a nil *T in a non-nil interface
		}
		return sink, nil
	}
}

// Reaches makes Sink.Reach of what a sink asks its server. The sink is closed afterwards.
func Reaches[C any, S driver.Sink](open func(C, *slog.Logger) (S, error), ask func(S, context.Context) error) func(context.Context, C, *slog.Logger) error {
	return func(ctx context.Context, c C, log *slog.Logger) error {
		sink, err := open(c, log)
		if err != nil {
			return err
		}
		defer func() { _ = sink.Close(ctx) }()
		return ask(sink, ctx)
	}
}

// ContentType is the header that sinks declare in their protocol's own way: AMQP's property,
// HTTP's field, Kafka's header of that name.
const ContentType = "content-type"

// Binding is the binding of a protocol in the CloudEvents specification, version 1.0.2:
// https://github.com/cloudevents/spec/tree/v1.0.2/cloudevents/bindings.
type Binding struct {
	// Name of the sink, for messages.
	Name string
	// Prefixes of attribute names that consumers of the protocol know, the one
	// to use by default first. Headers of the message must not begin with any.
	Prefixes []string
	// DataContentType is the header of the attribute datacontenttype in binary
	// mode, where the payload is the data.
	DataContentType string
	// Structured is the header that declares structured mode.
	Structured string
	// Percent: header values are ASCII, and other characters are percent-encoded.
	Percent bool
}

// Headers is the binding of a protocol with headers like HTTP's, and of a sink that knows
// ContentType.
func Headers(name string, prefixes ...string) Binding {
	return Binding{Name: name, Prefixes: prefixes, DataContentType: ContentType, Structured: ContentType}
}

// Adopted is a table that Penstock did not create, and the subscription that reads it.
type Adopted interface {
	Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error)
	Status(ctx context.Context) (admin.SubscriptionStatus, error)
	DeadLetters(ctx context.Context, q admin.DeadLetterQuery) ([]admin.DeadLetter, error)
	RetryDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error)
	DiscardDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error)
	ParkedKeys(ctx context.Context, limit int) ([]admin.ParkedKey, error)
	RetryParked(ctx context.Context, keys ...string) (int, error)
	Drop(ctx context.Context) error
	Close() error
}

// Remembered is a subscription over an adopted table, as a store knows it without its description.
type Remembered struct {
	Table  string // qualified and quoted as in SQL
	Status admin.SubscriptionStatus
}

// Store is a kind of database.
type Store struct {
	Title   string // for messages
	Usage   string // the form of a database URL, for messages
	Schemes []string
	// Check returns a *penstock.FieldError for an invalid URL or schema, without opening anything. It
	// is nil if there is nothing to check.
	Check func(url, schema string) error
	// Its warnings go to the log.
	Open func(ctx context.Context, url, schema string, log *slog.Logger) (driver.Database, error)
	// Place shows where the database is, without the login, or "" if that is unknown.
	Place func(url string) string
	// Postgres: it is store/postgres, which has everything that reads PostgreSQL's own tables.
	Postgres bool
	// Adopt prepares a subscription over a table that Penstock did not create, without connecting. It is nil if tables of
	// the database cannot be adopted.
	Adopt func(ctx context.Context, url, schema, subscription string, c adopted.Config, log *slog.Logger) (Adopted, error)
	// Remembers has the subscriptions over adopted tables. It is nil if the store that Open opens does.
	Remembers func(url, schema string) Remembers
}

// Opened is a store, or with an error nil, and not a nil *Store in a non-nil interface.
func Opened[S driver.Database](store S, err error) (driver.Database, error) {
	if err != nil {
		return nil, err
	}
	return store, nil
}

// Adopting is the same of an adopted table.
func Adopting[T Adopted](table T, err error) (Adopted, error) {
	if err != nil {
		return nil, err
	}
	return table, nil
}

// Remembers has the subscriptions over adopted tables, by name, without their backlog.
type Remembers interface {
	Adoptions(ctx context.Context) ([]Remembered, error)
	DropAdoption(ctx context.Context, subscription string) error
	Close() error
}
