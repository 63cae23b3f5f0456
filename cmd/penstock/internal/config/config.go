// Package config reads penstock.yaml and turns URLs from the command line into
// stores and sinks.
//
//	bytes → parse (YAML, limits) → decode (types, ${ENV}, file:) → defaults → validate
//
// With the defaults each subscription gets the limits that it does not set from the top level.
// After that, limits are checked against each other.
//
// The file is read strictly. An unknown key or value is an error that names file, line and column,
// shows the line and suggests a correct one. All errors of a file are reported at once.
// Passwords are kept out of every error, log line and printout.
//
// internal/drivers has the lists of databases and brokers; nothing registers itself.
package config

import (
	"cmp"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/store/portable"
	"github.com/penstock/penstock/store/postgres"
)

// Config is a whole penstock.yaml. Printed with any fmt verb, logged or
// marshalled it shows no passwords.
type Config struct {
	// DatabaseURL is where the outboxes are: postgres://… or sqlite:FILE.
	DatabaseURL URL `yaml:"database_url"`
	// Schema of Penstock's tables; PostgreSQL only.
	Schema string `yaml:"schema"`
	// Profile is how a database that speaks PostgreSQL's protocol is used.
	Profile Profile `yaml:"profile"`
	// Relay has the limits of subscriptions that do not set their own.
	Relay Relay `yaml:"relay"`
	Log   Log   `yaml:"log"`
	// Metrics are served while the relay runs, if it has an address.
	Metrics Metrics `yaml:"metrics"`
	// Console is served by penstock console, and by the relay if it has an address.
	Console Console `yaml:"console"`
	// Serve sets where messages are accepted over HTTP; nil means nowhere.
	Serve *Serve `yaml:"serve"`
	// Subscriptions to relay, at least one unless messages are accepted or jobs run.
	Subscriptions []Subscription `yaml:"subscriptions"`
	// Workers run the jobs of queues.
	Workers []Worker `yaml:"workers"`
}

// Log configures the log on standard error.
type Log struct {
	Level  slog.Level `yaml:"level"`
	Format Format     `yaml:"format"`
}

// Subscription relays one outbox or adopted table, or the messages that a filter chooses, to one
// sink.
type Subscription struct {
	Name string `yaml:"name"`
	// Outbox or Adopt is set, not both.
	Outbox string          `yaml:"outbox"`
	Adopt  *Adopt          `yaml:"adopt"`
	Start  Start           `yaml:"start"`
	Filter penstock.Filter `yaml:"filter"`
	Sink   Sink            `yaml:"sink"`
	// Format is the format of messages for consumers; nil leaves them unchanged.
	Format *WireFormat `yaml:"format"`
	// ClaimCheck stores large payloads outside of messages; nil leaves them in.
	ClaimCheck *ClaimCheck `yaml:"claim_check"`
	// Previous adds to each message the id of the one before it of its key; see
	// previous.Wrap.
	Previous bool `yaml:"previous"`
	// Shared: its relays divide the keys among themselves, instead of being on standby for one.
	Shared bool `yaml:"shared"`
	// Relay is complete once defaults are set: limits that the file does not set here come from
	// Config.Relay.
	Relay Relay `yaml:"relay"`
}

// Format of the log.
type Format string

// The formats there are.
const (
	Text Format = "text"
	JSON Format = "json"
)

// UnmarshalText parses text and json.
func (f *Format) UnmarshalText(b []byte) error { return oneOf(f, b, Text, JSON) }

// Start is driver.Start by name.
type Start string

// The starts there are.
const (
	FromBeginning Start = "beginning"
	FromNow       Start = "now"
)

// UnmarshalText parses beginning and now.
func (s *Start) UnmarshalText(b []byte) error { return oneOf(s, b, FromBeginning, FromNow) }

// Of is the driver's start.
func (s Start) Of() driver.Start {
	if s == FromNow {
		return driver.FromNow
	}
	return driver.FromBeginning
}

// Loader reads a file in its surroundings; the zero value is usable.
type Loader struct {
	// DatabaseURL, from the command line, replaces the file's.
	DatabaseURL string
	// Profile, from the command line, replaces the file's.
	Profile Profile
	// Ask is the argument of Profile.Of. If it is nil, no connection is opened, and auto means
	// postgres.
	Ask func(url string) (portable bool)
	// LookupEnv defaults to os.LookupEnv.
	LookupEnv func(name string) (string, bool)
	// ReadFile reads the configuration and the files named by file:, up to a
	// limit. It defaults to the file system.
	ReadFile func(path string) ([]byte, error)
}

// Load reads and checks a file. The error is an Errors if the file could be read and has mistakes in it.
func (l Loader) Load(path string) (*Config, error) {
	data, err := l.withDefaults().ReadFile(path)
	if err != nil {
		return nil, penstock.WithHint(err, "name the configuration file with --config, or start from examples/penstock.yaml")
	}
	return l.LoadBytes(path, data)
}

// Database reads only where the database is. So that is known even if the rest cannot be read, for
// example without a secret. The URL is empty if the file has none.
func (l Loader) Database(path string) (url URL, schema string, err error) {
	data, err := l.withDefaults().ReadFile(path)
	if err != nil {
		return "", "", err
	}
	d, root, err := l.decoder(path, data)
	if err != nil {
		return "", "", err
	}
	c := Config{DatabaseURL: URL(l.DatabaseURL)}
	fields := fieldsOf(reflect.ValueOf(&c).Elem())
	d.mapping(root, "", func(key string, _ position, child ast.Node) {
		if key == "database_url" || key == "schema" || key == "profile" {
			d.value(child, fields[slices.IndexFunc(fields, func(f field) bool { return f.key == key })].value, key)
		}
	})
	if err := d.failed(); err != nil {
		return "", "", err
	}
	return URL(c.Profile.or(l.Profile).Of(c.DatabaseURL.Reveal(), l.Ask)), c.Schema, nil
}

// Origin is the source of the subscription: its outbox or its adopted table.
func (s *Subscription) Origin() string {
	if s.Adopt != nil {
		return s.Adopt.Table
	}
	return s.Outbox
}

// LoadBytes checks a file's content. The name is for errors, and relative paths in file: values
// start in its folder.
func (l Loader) LoadBytes(name string, data []byte) (*Config, error) {
	d, root, err := l.decoder(name, data)
	if err != nil {
		return nil, err
	}
	c := &Config{DatabaseURL: URL(l.DatabaseURL)}
	d.value(root, reflect.ValueOf(c).Elem(), "")
	c.Profile = c.Profile.or(l.Profile)
	c.DatabaseURL = URL(c.Profile.Of(c.DatabaseURL.Reveal(), l.Ask))
	c.SetDefaults()
	d.validate(c)
	if err := d.failed(); err != nil {
		return nil, err
	}
	return c, nil
}

// decoder reads a file's content. The variables of a URL that is given already need not be set.
func (l Loader) decoder(name string, data []byte) (*decoder, ast.Node, error) {
	src, root, fail := parse(name, data)
	if fail != nil {
		return nil, nil, Errors{fail}
	}
	l = l.withDefaults()
	d := newDecoder(src, &resolver{lookupEnv: l.LookupEnv, readFile: l.ReadFile, dir: filepath.Dir(name)})
	d.given["database_url"] = l.DatabaseURL != ""
	return d, root, nil
}

func (l Loader) withDefaults() Loader {
	if l.LookupEnv == nil {
		l.LookupEnv = os.LookupEnv
	}
	if l.ReadFile == nil {
		l.ReadFile = readLimited
	}
	return l
}

// readLimited reads at most one byte more than a configuration may have, to notice a file that is
// too large.
func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxBytes+1))
}

// Profile is how Penstock uses a database that speaks PostgreSQL's protocol.
type Profile string

// The profiles. Auto asks the server with one more connection: portable on YugabyteDB and CockroachDB, else postgres.
const (
	Auto     Profile = "auto"
	Postgres Profile = "postgres"
	Portable Profile = "portable"
)

// UnmarshalText parses auto, postgres and portable.
func (p *Profile) UnmarshalText(b []byte) error { return oneOf(p, b, Auto, Postgres, Portable) }

// Of returns the URL of a database that is used in this way. Its scheme names the driver, so every user of the URL
// opens it in the same way. Auto calls ask, which asks a PostgreSQL-like server whether only the portable profile can
// use it. If ask is nil, no server is asked.
func (p Profile) Of(url string, ask func(url string) (portable bool)) string {
	if p == Portable || p == Auto && ask != nil && slices.Contains(postgres.Driver.Schemes, drivers.Scheme(url)) && ask(url) {
		return portable.URL(url)
	}
	return url
}

func (p Profile) or(over Profile) Profile { return cmp.Or(over, p) }
