package config

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/discard"
	"github.com/penstock/penstock/sink/kafka"
	"github.com/penstock/penstock/sink/nats"
	"github.com/penstock/penstock/sink/rabbitmq"
	"github.com/penstock/penstock/sink/stdout"
	"github.com/penstock/penstock/sink/webhook"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/sqlite"
)

// Sink is the configuration of one sink: exactly one field is set.
type Sink struct {
	RabbitMQ *rabbitmq.Config `yaml:"rabbitmq"`
	NATS     *nats.Config     `yaml:"nats"`
	Kafka    *kafka.Config    `yaml:"kafka"`
	Webhook  *webhook.Config  `yaml:"webhook"`
	Stdout   *stdout.Config   `yaml:"stdout"`
	Discard  *discard.Config  `yaml:"discard"`
	// Queue is in the same database; see Forward.
	Queue *Queue `yaml:"queue"`
}

// sinks is the driver list: the key in the file, what --sink takes, and the
// schemes it is known by. A new sink is its folder, a field above and a line
// here.
var sinks = []sinkDriver{
	driver("rabbitmq", "amqp://HOST", []string{"amqp", "amqps"}, func(s *Sink) **rabbitmq.Config { return &s.RabbitMQ }, rabbitmq.ParseURL, rabbitmq.Open),
	driver("nats", "nats://HOST or embedded[:DIR]", []string{"nats", "tls", "ws", "wss", "embedded"}, func(s *Sink) **nats.Config { return &s.NATS }, nats.ParseURL, nats.Open),
	driver("kafka", "kafka://HOST", []string{"kafka", "kafkas"}, func(s *Sink) **kafka.Config { return &s.Kafka }, kafka.ParseURL, kafka.Open),
	driver("webhook", "https://HOST/PATH", []string{"https", "http"}, func(s *Sink) **webhook.Config { return &s.Webhook }, webhook.ParseURL, webhook.Open),
	driver("stdout", "stdout", []string{"stdout", "-"}, func(s *Sink) **stdout.Config { return &s.Stdout }, stdout.ParseURL, stdout.Open),
	driver("discard", "discard", []string{"discard"}, func(s *Sink) **discard.Config { return &s.Discard }, discard.ParseURL, discard.Open),
	driver("queue", "queue:NAME", []string{"queue"}, func(s *Sink) **Queue { return &s.Queue }, parseQueue, openQueue),
}

// stores is the same list for databases.
var stores = []storeDriver{
	{"postgres://USER@HOST/DATABASE", []string{"postgres", "postgresql"}, func(ctx context.Context, url, schema string) (penstock.Store, error) {
		return asStore(postgres.Open(ctx, url, postgres.Options{Schema: schema}))
	}},
	{"sqlite:FILE", []string{"sqlite"}, func(ctx context.Context, url, _ string) (penstock.Store, error) {
		return asStore(sqlite.Open(ctx, sqliteFile(url), sqlite.Options{}))
	}},
}

// sinkConfig is what the configuration of every sink can do.
type sinkConfig interface {
	SetDefaults()
	Validate() error
}

type sinkDriver struct {
	name    string
	usage   string
	schemes []string
	parse   func(u string) (Sink, error)
	config  func(*Sink) sinkConfig // nil where another sink is set
	open    func(*Sink, *slog.Logger) (penstock.Sink, error)
}

func driver[C any, P interface {
	*C
	sinkConfig
}, S penstock.Sink](name, usage string, schemes []string, field func(*Sink) **C, parse func(string) (C, error), open func(C, *slog.Logger) (S, error)) sinkDriver {
	return sinkDriver{
		name: name, usage: usage, schemes: schemes,
		parse: func(u string) (s Sink, err error) {
			c, err := parse(u)
			if err == nil {
				*field(&s) = &c
			}
			return s, err
		},
		config: func(s *Sink) sinkConfig {
			if c := *field(s); c != nil {
				return P(c)
			}
			return nil
		},
		open: func(s *Sink, log *slog.Logger) (penstock.Sink, error) {
			sink, err := open(**field(s), log)
			if err != nil {
				return nil, err // not a nil *T in a non-nil interface
			}
			return sink, nil
		},
	}
}

// ParseSink turns the value of --sink into a sink with its defaults set:
// amqp://…, nats://…, embedded[:DIR], kafka://…, https://…, queue:NAME and so on. The fields of the sink's
// configuration are query parameters.
func ParseSink(url string) (Sink, error) {
	for _, d := range sinks {
		if !slices.Contains(d.schemes, scheme(url)) {
			continue
		}
		s, err := d.parse(url)
		if err != nil {
			return Sink{}, &redactedError{fmt.Errorf("sink %s: %w", d.name, err)}
		}
		s.setDefaults()
		return s, nil
	}
	var usages []string
	for _, d := range sinks {
		usages = append(usages, d.usage)
	}
	return Sink{}, &penstock.FieldError{Field: "sink", Problem: unknownScheme(url), Hint: "write " + oneOf(usages)}
}

// Open opens the sink that is set. It does not need the broker to be up.
func (s *Sink) Open(log *slog.Logger) (penstock.Sink, error) {
	for _, d := range sinks {
		if d.config(s) != nil {
			return d.open(s, log)
		}
	}
	return nil, &penstock.FieldError{Field: "sink", Problem: "is not set", Hint: "set one of " + oneOf(sinkNames())}
}

// Name of the sink that is set, as the file calls it; empty if none is.
func (s *Sink) Name() string {
	_, name := s.config()
	return name
}

func (s *Sink) config() (sinkConfig, string) {
	for _, d := range sinks {
		if c := d.config(s); c != nil {
			return c, d.name
		}
	}
	return nil, ""
}

func (s *Sink) setDefaults() {
	if c, _ := s.config(); c != nil {
		c.SetDefaults()
	}
}

func sinkNames() []string {
	var names []string
	for _, d := range sinks {
		names = append(names, d.name)
	}
	return names
}

// redactedError keeps passwords out of what a driver says of its URL.
type redactedError struct{ err error }

func (e *redactedError) Error() string { return Redact(e.err.Error()) }

func (e *redactedError) Unwrap() error { return e.err }

type storeDriver struct {
	usage   string
	schemes []string
	open    func(ctx context.Context, url, schema string) (penstock.Store, error)
}

// OpenStore opens the database that url names: postgres://… or sqlite:FILE. The
// schema is for PostgreSQL; empty means penstock. Errors do not show the
// password.
func OpenStore(ctx context.Context, url, schema string) (penstock.Store, error) {
	if err := checkStoreURL(url, schema); err != nil {
		return nil, err
	}
	for _, d := range stores {
		if slices.Contains(d.schemes, scheme(url)) {
			store, err := d.open(ctx, url, schema)
			if err != nil {
				return nil, &redactedError{err}
			}
			return store, nil
		}
	}
	return nil, penstock.ErrClosed // not reached: checkStoreURL knows the same list
}

func asStore[S penstock.Store](s S, err error) (penstock.Store, error) { return s, err }

// checkStoreURL reports what is wrong with a database URL without opening it.
func checkStoreURL(url, schema string) error {
	known := slices.ContainsFunc(stores, func(d storeDriver) bool { return slices.Contains(d.schemes, scheme(url)) })
	switch {
	case !known:
		var usages []string
		for _, d := range stores {
			usages = append(usages, d.usage)
		}
		return &penstock.FieldError{Field: "database_url", Problem: unknownScheme(url), Hint: "write " + oneOf(usages)}
	case isSQLite(url) && sqliteFile(url) == "":
		return &penstock.FieldError{Field: "database_url", Problem: "names no file", Hint: "write sqlite:FILE"}
	case isSQLite(url) && schema != "":
		return &penstock.FieldError{Field: "schema", Problem: "is set for a SQLite database, which has none", Hint: "remove it"}
	}
	return nil
}

// SameDatabase reports whether two URLs lead to one database, whoever logs in there
// and however.
func SameDatabase(a, b string) bool {
	return a == b || whereabouts(a) != "" && whereabouts(a) == whereabouts(b)
}

// whereabouts is what says in a URL where the database is, empty if that cannot be told.
func whereabouts(url string) string {
	if isSQLite(url) {
		file, err := filepath.Abs(sqliteFile(url))
		if err != nil {
			return ""
		}
		return file
	}
	c, err := pgconn.ParseConfig(url)
	if err != nil {
		return ""
	}
	hosts := []string{fmt.Sprintf("%s:%d", c.Host, c.Port)}
	for _, f := range c.Fallbacks { // one for each host, and each way of using TLS
		hosts = append(hosts, fmt.Sprintf("%s:%d", f.Host, f.Port))
	}
	slices.Sort(hosts)
	return fmt.Sprint(slices.Compact(hosts), c.Database)
}

func isSQLite(url string) bool { return scheme(url) == "sqlite" }

// sqliteFile takes sqlite:FILE, and sqlite:///FILE as other tools write it.
func sqliteFile(url string) string {
	file := url[len("sqlite:"):]
	return strings.TrimPrefix(file, "//")
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
		for _, f := range fieldsOf(reflect.ValueOf(s).Elem()) {
			if f.key == key {
				names = append(names, key)
				d.value(child, f.value, join(path, key))
				return
			}
		}
		d.unknown(at, path, key, sinkNames())
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
