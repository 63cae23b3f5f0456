package config

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"

	"github.com/goccy/go-yaml/ast"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
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
	// Serve says where messages are accepted over HTTP; nil means nowhere.
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

// NewLogger returns a logger that writes as l says.
func (l Log) NewLogger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: l.Level}
	if l.Format == JSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// Start is driver.Start by name.
type Start driver.Start

// UnmarshalText parses beginning and now.
func (s *Start) UnmarshalText(b []byte) error {
	switch string(b) {
	case "beginning":
		*s = Start(driver.FromBeginning)
	case "now":
		*s = Start(driver.FromNow)
	default:
		return &hintError{*notOneOf(string(b), []string{"beginning", "now"})}
	}
	return nil
}

// MarshalText writes the form that UnmarshalText reads.
func (s Start) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s Start) String() string {
	if driver.Start(s) == driver.FromNow {
		return "now"
	}
	return "beginning"
}

// Load reads and checks a file. The error is an Errors if the file could be
// read and has mistakes in it.
func Load(path string) (*Config, error) { return Loader{}.Load(path) }

// Loader is Load with its surroundings replaced.
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

// Load reads and checks a file.
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
	l = l.withDefaults()
	data, err := l.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	src, root, fail := parse(path, data)
	if fail != nil {
		return "", "", Errors{fail}
	}
	d := newDecoder(src, &resolver{lookupEnv: l.LookupEnv, readFile: l.ReadFile, dir: filepath.Dir(path)})
	var profile Profile
	d.mapping(root, "", func(key string, _ position, child ast.Node) {
		switch key {
		case "database_url":
			if l.DatabaseURL != "" { // its variables need not be set
				return
			}
			d.value(child, reflect.ValueOf(&url).Elem(), key)
		case "schema":
			d.value(child, reflect.ValueOf(&schema).Elem(), key)
		case "profile":
			d.value(child, reflect.ValueOf(&profile).Elem(), key)
		}
	})
	if len(d.errs) > 0 {
		d.hideSecrets()
		d.errs.sort()
		return "", "", d.errs
	}
	if l.DatabaseURL != "" {
		url = URL(l.DatabaseURL)
	}
	return URL(profile.or(l.Profile).Of(url.Reveal(), l.Ask)), schema, nil
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
	l = l.withDefaults()
	src, root, fail := parse(name, data)
	if fail != nil {
		return nil, Errors{fail}
	}
	d := newDecoder(src, &resolver{lookupEnv: l.LookupEnv, readFile: l.ReadFile, dir: filepath.Dir(name)})
	c := &Config{DatabaseURL: URL(l.DatabaseURL)}
	d.given["database_url"] = l.DatabaseURL != ""
	d.value(root, reflect.ValueOf(c).Elem(), "")
	c.Profile = c.Profile.or(l.Profile)
	c.DatabaseURL = URL(c.Profile.Of(c.DatabaseURL.Reveal(), l.Ask))
	c.SetDefaults()
	d.validate(c)
	if len(d.errs) > 0 {
		d.hideSecrets()
		d.errs.sort()
		return nil, d.errs
	}
	return c, nil
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
