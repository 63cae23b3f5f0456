package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/driver"
	"github.com/penstock/penstock/internal/readback"
	"github.com/penstock/penstock/sink/discard"
	"github.com/penstock/penstock/sink/format"
	"github.com/penstock/penstock/sink/kafka"
	"github.com/penstock/penstock/sink/nats"
	"github.com/penstock/penstock/sink/rabbitmq"
	"github.com/penstock/penstock/sink/stdout"
	"github.com/penstock/penstock/sink/webhook"
	"github.com/penstock/penstock/store/mysql"
	"github.com/penstock/penstock/store/portable"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/sqlite"
)

// sinks is the driver list. A new sink is its folder and a line here.
var sinks = []sinkDriver{
	listed(rabbitmq.Driver),
	listed(nats.Driver),
	listed(kafka.Driver),
	listed(webhook.Driver),
	listed(stdout.Driver),
	listed(discard.Driver),
	listed(queueDriver),
}

// stores is the same list for databases.
var stores = []driver.Store{postgres.Driver, sqlite.Driver, portable.Driver, mysql.Driver}

// Sink is the configuration of one sink of the list. Its zero value is none.
type Sink struct {
	of     *sinkDriver
	config sinkConfig
}

// sinkConfig is what the configuration of every sink can do.
type sinkConfig interface {
	SetDefaults()
	Validate() error
}

// sinkDriver is a driver.Sink of any configuration.
type sinkDriver struct {
	name, usage string
	schemes     []string
	binding     driver.Binding
	readBack    func(url, dir, name string) (readback.Broker, error)
	blank       func() sinkConfig
	parse       func(url string) (sinkConfig, error)
	open        func(sinkConfig, *slog.Logger) (penstock.Sink, error)
	reach       func(context.Context, sinkConfig, *slog.Logger) error // nil: there is nothing to reach
}

func listed[C any, P interface {
	*C
	sinkConfig
}](d driver.Sink[C]) sinkDriver {
	d.Binding.Name = d.Name
	listed := sinkDriver{
		name: d.Name, usage: d.Usage, schemes: d.Schemes, binding: d.Binding, readBack: d.ReadBack,
		blank: func() sinkConfig { return P(new(C)) },
		parse: func(url string) (sinkConfig, error) {
			c, err := d.Parse(url)
			return P(&c), err
		},
		open: func(c sinkConfig, log *slog.Logger) (penstock.Sink, error) { return d.Open(*c.(P), log) },
	}
	if d.Reach != nil {
		listed.reach = func(ctx context.Context, c sinkConfig, log *slog.Logger) error { return d.Reach(ctx, *c.(P), log) }
	}
	return listed
}

// ParseSink turns the value of --sink into a sink with its defaults set:
// amqp://…, nats://…, embedded[:DIR], kafka://…, https://…, queue:NAME and so on. The fields of the sink's
// configuration are query parameters.
func ParseSink(url string) (Sink, error) {
	d, err := sinkOf(url)
	if err != nil {
		return Sink{}, err
	}
	c, err := d.parse(url)
	if err != nil {
		return Sink{}, &redactedError{fmt.Errorf("sink %s: %w", d.name, err)}
	}
	c.SetDefaults()
	return Sink{d, c}, nil
}

// sinkOf finds the driver by the URL's scheme.
func sinkOf(url string) (*sinkDriver, error) {
	for i := range sinks {
		d := &sinks[i]
		if s, _, _ := strings.Cut(scheme(url), "?"); slices.Contains(d.schemes, s) {
			return d, nil
		}
	}
	return nil, &penstock.FieldError{Field: "sink", Problem: unknownScheme(url), Hint: "write " + oneOf(sinkUsages())}
}

// ReadBack returns the consumer of a sink, nil where nobody can read what the sink was
// given. dir is for a server's files, name for queues and streams.
func ReadBack(url, dir, name string) (readback.Broker, error) {
	d, err := sinkOf(url)
	if err != nil || d.readBack == nil {
		return nil, err
	}
	return d.readBack(url, dir, name)
}

// Open opens the sink that is set. It does not need the broker to be up.
func (s *Sink) Open(log *slog.Logger) (penstock.Sink, error) {
	if s.of == nil {
		return nil, &penstock.FieldError{Field: "sink", Problem: "is not set", Hint: "set one of " + oneOf(sinkNames())}
	}
	return s.of.open(s.config, log)
}

// Reach connects to what the sink sends to, and sends nothing. It is false where there is nothing to connect to.
func (s *Sink) Reach(ctx context.Context, log *slog.Logger) (tried bool, err error) {
	if s.of == nil || s.of.reach == nil {
		return false, nil
	}
	if err = s.of.reach(ctx, s.config, log); err != nil {
		err = &redactedError{err}
	}
	return true, err
}

// Name of the sink that is set, as the file calls it; empty if none is.
func (s *Sink) Name() string {
	if s.of == nil {
		return ""
	}
	return s.of.name
}

// Binding is how the sink carries CloudEvents.
func (s *Sink) Binding() (b format.Binding) {
	if s.of != nil {
		b = s.of.binding
	}
	return b
}

func (s *Sink) setDefaults() {
	if s.config != nil {
		s.config.SetDefaults()
	}
}

func sinkNames() []string {
	var names []string
	for _, d := range sinks {
		names = append(names, d.name)
	}
	return names
}

func sinkUsages() []string {
	var usages []string
	for _, d := range sinks {
		usages = append(usages, d.usage)
	}
	return usages
}

// redactedError keeps passwords out of what a driver says of its URL.
type redactedError struct{ err error }

func (e *redactedError) Error() string { return Redact(e.err.Error()) }

func (e *redactedError) Unwrap() error { return e.err }

// OpenStore opens the database that url names: postgres://… or sqlite:FILE. The
// schema is for PostgreSQL; empty means penstock. What the store warns of goes to the
// log, of nil to slog.Default(). Errors do not show the password.
func OpenStore(ctx context.Context, url, schema string, log *slog.Logger) (penstock.Store, error) {
	if err := checkStoreURL(url, schema); err != nil {
		return nil, err
	}
	store, err := storeOf(url).Open(ctx, url, schema, log)
	if err != nil {
		return nil, &redactedError{err}
	}
	return store, nil
}

// storeOf finds the driver by the URL's scheme, nil if none has it.
func storeOf(url string) *driver.Store {
	for i := range stores {
		if slices.Contains(stores[i].Schemes, scheme(url)) {
			return &stores[i]
		}
	}
	return nil
}

// NoTables says what database it is where url names one whose tables cannot be adopted, empty if it may.
func NoTables(url string) (database string) {
	if d := storeOf(url); d != nil && d.Adopt == nil {
		return d.Title
	}
	return ""
}

// NotPostgres says what database it is where url names one that is used without what PostgreSQL has, empty if it is.
func NotPostgres(url string) (database string) {
	if d := storeOf(url); d != nil && !d.Postgres {
		return d.Title
	}
	return ""
}

// OpenTable prepares a subscription over a table that somebody else made. It does not connect.
func OpenTable(ctx context.Context, url, schema, subscription string, c adopted.Config, log *slog.Logger) (driver.Adopted, error) {
	d, err := adopts(url)
	if err != nil {
		return nil, err
	}
	table, err := d.Adopt(ctx, url, schema, subscription, c, log)
	if err != nil {
		return nil, &redactedError{err}
	}
	return table, nil
}

// Adoptions are the subscriptions over such tables that the database remembers, by name.
func Adoptions(ctx context.Context, url, schema string) ([]driver.Remembered, error) {
	d, err := adopts(url)
	if err != nil {
		return nil, err
	}
	return d.Adoptions(ctx, url, schema)
}

// DropAdoption forgets one.
func DropAdoption(ctx context.Context, url, schema, subscription string) error {
	d, err := adopts(url)
	if err != nil {
		return err
	}
	return d.DropAdoption(ctx, url, schema, subscription)
}

func adopts(url string) (*driver.Store, error) {
	if err := checkStoreURL(url, ""); err != nil {
		return nil, err
	}
	if database := NoTables(url); database != "" {
		return nil, errors.New("tables are adopted in PostgreSQL and MariaDB, and this database is " + database)
	}
	return storeOf(url), nil
}

// checkStoreURL reports what is wrong with a database URL without opening it.
func checkStoreURL(url, schema string) error {
	d := storeOf(url)
	if d == nil {
		var usages []string
		for _, d := range stores {
			if d.Usage != "" {
				usages = append(usages, d.Usage)
			}
		}
		return &penstock.FieldError{Field: "database_url", Problem: unknownScheme(url), Hint: "write " + oneOf(usages)}
	}
	if d.Check == nil {
		return nil
	}
	return d.Check(url, schema)
}

// SameDatabase reports whether two URLs lead to one database, whoever logs in there
// and however.
func SameDatabase(a, b string) bool {
	return a == b || whereabouts(a) != "" && whereabouts(a) == whereabouts(b)
}

// whereabouts is what says in a URL where the database is, empty if that cannot be told.
func whereabouts(url string) string {
	if d := storeOf(url); d != nil {
		return d.Place(url)
	}
	return ""
}

// scheme is what stands before the colon, all of it where there is none.
func scheme(url string) string {
	s, _, _ := strings.Cut(url, ":")
	return strings.ToLower(s)
}

// unknownScheme never quotes more than a scheme: what looks like a bare word
// may be a password in the wrong place.
func unknownScheme(url string) string {
	if s, _, ok := strings.Cut(url, "://"); ok && len(s) < 20 {
		return fmt.Sprintf("has the unknown scheme %q", s)
	}
	if url == "" {
		return "is empty"
	}
	return "is not a URL of a known kind"
}

// decodeNode takes a mapping with the sink's name as its only key, or what
// --sink takes.
func (s *Sink) decodeNode(d *decoder, n ast.Node, path string) {
	if raw, _, ok := scalarText(n); ok {
		s.decodeURL(d, n, raw, path)
		return
	}
	var names []string
	d.mapping(n, path, func(key string, at position, child ast.Node) {
		i := slices.IndexFunc(sinks, func(of sinkDriver) bool { return of.name == key })
		if i < 0 {
			d.unknown(at, path, key, sinkNames())
			return
		}
		if names = append(names, key); len(names) == 1 {
			*s = Sink{&sinks[i], sinks[i].blank()}
			d.value(child, reflect.ValueOf(s.config).Elem(), join(path, key))
		}
	})
	if len(names) > 1 {
		d.fail(d.near(path+"."+names[1]), path, problem{"has " + strings.Join(names, " and "), "a subscription has one sink: make a second subscription for the other"})
	}
}

func (s *Sink) decodeURL(d *decoder, n ast.Node, raw, path string) {
	at := nodePlace(n)
	url, ok := d.resolved(raw, at, path)
	if !ok {
		return
	}
	parsed, err := ParseSink(url)
	if err != nil {
		what := strings.TrimPrefix(d.scrub(err.Error()), "sink ")
		d.fail(at, path, problem{what, ""})
		return
	}
	*s = parsed
}
