// Package cli is shared by the verbs of the command line; each folder below it has the
// verbs of one subject, and cmd/penstock puts them together.
//
//	app.go                 the streams, the global flags, the database they mean, and what runs until a signal
//	outboxes.go queues.go  questions of several verbs to a store
//	kinds.go               list, grant and drop, the same for each kind of thing
//	flags.go lines.go      flags of several verbs, JSON lines from stdin
//	exit.go complete.go    the next step for an error; names for the shell
//	confirm.go             asking before something is lost, and reads that Ctrl-C ends
//	text.go                text for people: one dead letter or held message, times and sizes
//
// Parts that other programs also have are in internal/terminal.
package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/run"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/schema"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/store/portable"
	"github.com/penstock/penstock/trace/otlp"
)

// App is shared by all verbs: the streams and the global flags.
type App struct {
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  *terminal.Scrubber
	Getenv  func(string) string
	Version string // of this program

	// Parts that tests replace: the functions that open a store's URL and run what a configuration describes, whether a user can be
	// asked, and the effect of SIGINT and SIGTERM.
	Open        func(ctx context.Context, url, schema string, log *slog.Logger) (driver.Database, error)
	Parts       func(ctx context.Context, cfg *config.Config, o run.Options) error
	Interactive bool
	OnSignals   func(first, second func()) (stop func())
	answers     *bufio.Reader // of stdin; nil until something was asked
	ends        []func() error

	DatabaseURL  string
	DatabaseURLs []string // all that were given; the last counts, except for verbs that take several
	Schema       string
	Profile      string
	ConfigFile   string
	LogLevel     string
	LogFormat    string
	JSON         bool // --json, of the verb that runs
}

// New is a command line that notices failed writes to stdout, and that writes no password to
// stderr.
func New(stdin io.Reader, stdout, stderr io.Writer) *App {
	return &App{Stdin: stdin, Stdout: &terminal.Results{W: stdout}, Stderr: terminal.NewScrubber(stderr), Getenv: os.Getenv, OnSignals: terminal.OnSignals}
}

// Later calls end, which closes something, when the verb has ended.
func (a *App) Later(end func() error) { a.ends = append(a.ends, end) }

// Close closes everything that the verb opened.
func (a *App) Close() {
	for _, end := range slices.Backward(a.ends) { // users of a thing were opened after it
		_ = end()
	}
}

// DatabaseFlag takes --database-url.
type DatabaseFlag struct{ *App }

func (f DatabaseFlag) String() string { return "" }
func (f DatabaseFlag) Type() string   { return "string" }
func (f DatabaseFlag) Set(url string) error {
	f.DatabaseURL, f.DatabaseURLs = url, append(f.DatabaseURLs, url)
	return nil
}

// Over is a with another database and nothing opened. Close it as well.
func (a *App) Over(url, schema string) *App {
	b := *a
	b.DatabaseURL, b.Schema, b.ConfigFile, b.ends, b.DatabaseURLs = url, schema, "", nil, nil
	return &b
}

// DefaultConfigFile is read when nothing else names a database.
const DefaultConfigFile = "penstock.yaml"

var ErrNoDatabase = errors.New("no database is given: pass --database-url postgres://… or sqlite:FILE, set PENSTOCK_DATABASE_URL, or pass --config penstock.yaml")

// Database returns the database to use, from the first of: --database-url, the file of --config,
// $PENSTOCK_DATABASE_URL and ./penstock.yaml. The latter two must agree.
func (a *App) Database() (url, schema string, err error) {
	profile := config.Profile(a.Profile)
	if profile != "" {
		if err := profile.UnmarshalText([]byte(profile)); err != nil {
			return "", "", terminal.Usage(fmt.Errorf("--profile %w", err))
		}
	}
	if a.DatabaseURL != "" {
		if a.ConfigFile == "" {
			return profile.Of(a.DatabaseURL, ask), a.Schema, nil
		}
		given, schema, err := config.Loader{DatabaseURL: a.DatabaseURL, Profile: profile, Ask: ask}.Database(a.ConfigFile)
		return given.Reveal(), cmp.Or(a.Schema, schema), terminal.Usage(err)
	}
	variable := a.Getenv("PENSTOCK_DATABASE_URL")
	if a.ConfigFile == "" && variable != "" {
		url, schema, err = a.agreed(variable)
		return url, cmp.Or(a.Schema, schema), err
	}
	file := cmp.Or(a.ConfigFile, DefaultConfigFile)
	if _, err := os.Stat(file); err == nil { // the variables of a sink need not be set for a verb that only opens the database
		if given, schema, err := (config.Loader{Profile: profile, Ask: ask}).Database(file); err != nil || given != "" {
			return given.Reveal(), cmp.Or(a.Schema, schema), terminal.Usage(err)
		}
	}
	if _, err := a.LoadConfig(); err != nil { // its key may be mistyped
		return "", "", err
	}
	return "", "", terminal.Usage(ErrNoDatabase)
}

// ask is how the profile auto finds out. Verbs that read a file continue with its database.
func ask(url string) bool { return portable.Wanted(context.Background(), url) }

// agreed checks that ./penstock.yaml, if it exists, names the same database as the variable. It returns that
// database in the file's profile, and its schema. A user who set one and forgot the other would work on the wrong
// database.
func (a *App) agreed(variable string) (given, schema string, err error) {
	profile := config.Profile(a.Profile)
	if _, err := os.Stat(DefaultConfigFile); err != nil {
		return profile.Of(variable, ask), "", nil
	}
	// Only this is read: most verbs need nothing else of it.
	url, schema, err := config.Loader{Profile: profile, Ask: ask}.Database(DefaultConfigFile)
	if err != nil {
		return "", "", terminal.Usage(err)
	}
	a.Stderr.Hide(url.Reveal())
	if url != "" && !drivers.SameDatabase(url.Reveal(), variable) {
		return "", "", terminal.Usage(fmt.Errorf("PENSTOCK_DATABASE_URL is %s, and ./%s has %s: pass --config %[2]s or --database-url to say which is meant, or unset the variable",
			config.URL(variable), DefaultConfigFile, url))
	}
	again, _, err := config.Loader{DatabaseURL: variable, Profile: profile, Ask: ask}.Database(DefaultConfigFile)
	return again.Reveal(), schema, terminal.Usage(err)
}

// LoadConfig reads the file of --config, or ./penstock.yaml if it exists. It returns nil if there
// is none.
func (a *App) LoadConfig() (*config.Config, error) {
	file := a.ConfigFile
	if file == "" {
		if _, err := os.Stat(DefaultConfigFile); err != nil {
			return nil, nil
		}
		file = DefaultConfigFile
	}
	url := a.DatabaseURL
	if url == "" && a.ConfigFile == "" {
		if url = a.Getenv("PENSTOCK_DATABASE_URL"); url != "" {
			if _, _, err := a.agreed(url); err != nil {
				return nil, err
			}
		}
	}
	cfg, err := config.Loader{DatabaseURL: url, Profile: config.Profile(a.Profile), Ask: ask}.Load(file)
	return cfg, terminal.Usage(err)
}

// WithJSON is cmd with the flag --json.
func (a *App) WithJSON(cmd *cobra.Command, help string) *cobra.Command {
	cmd.Flags().BoolVar(&a.JSON, "json", false, help)
	return cmd
}

// Tell prints the result: fields for programs, or a sentence.
func (a *App) Tell(fields any, sentence string, args ...any) error {
	if a.JSON {
		return json.NewEncoder(a.Stdout).Encode(fields)
	}
	_, err := fmt.Fprintf(a.Stdout, sentence, args...)
	return err
}

// GivenDatabase is the database of --database-url or --config, or none: the demo then creates its
// own. PENSTOCK_DATABASE_URL alone does not count, because the demo writes.
func (a *App) GivenDatabase() (url, schema string, err error) {
	if a.DatabaseURL == "" && a.ConfigFile == "" {
		return "", "", nil
	}
	url, _, err = a.Database()
	return url, a.Schema, err
}

// Place shows where that database is, without the login.
func (a *App) Place() string {
	url, _, _ := a.Database() // opening it reports the error
	return drivers.Place(url)
}

// OpenStore opens the database of the flags, the environment or the configuration, until the verb
// ends.
func (a *App) OpenStore(ctx context.Context) (driver.Database, error) {
	url, _, err := a.Database()
	if err != nil {
		return nil, err
	}
	return a.OpenStoreAt(ctx, url)
}

// OpenStoreAt is OpenStore with another form of its URL.
func (a *App) OpenStoreAt(ctx context.Context, url string) (driver.Database, error) {
	_, schema, err := a.Database()
	if err != nil {
		return nil, err
	}
	a.Stderr.Hide(url)
	open := drivers.OpenStore
	if a.Open != nil {
		open = a.Open
	}
	store, err := open(ctx, url, schema, a.Logger())
	if err == nil {
		a.Later(store.Close)
	}
	return store, err
}

// Opened is the RunE of a verb that opens the database first.
func (a *App) Opened(do func(ctx context.Context, store driver.Database, args []string) error) func(*cobra.Command, []string) error {
	return a.Checked(func(*cobra.Command, []string) error { return nil }, do)
}

// Checked is Opened for a verb that checks its flags and arguments before.
func (a *App) Checked(check func(*cobra.Command, []string) error, do func(ctx context.Context, store driver.Database, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return err
		}
		store, err := a.OpenStore(cmd.Context())
		if err != nil {
			return err
		}
		return do(cmd.Context(), store, args)
	}
}

// Logger writes to stderr as --log-format and --log-level say, which are checked before a verb runs.
func (a *App) Logger() *slog.Logger {
	log, err := terminal.NewLogger(a.Stderr, a.LogLevel, a.LogFormat)
	if err != nil { // names for the shell: no verb runs
		return slog.New(slog.DiscardHandler)
	}
	return log
}

// WarnOfDifferences compares the functions of a queue, or without a name those of a relay, with this program's, while a verb runs. For a
// worker it also compares the tables; a relay learns of differences by its first call. Call the returned function before the store is
// closed.
func WarnOfDifferences(ctx context.Context, store any, queue string, worker bool, log *slog.Logger) (end func()) {
	checker, ok := store.(driver.SchemaChecker)
	if !ok {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		differences, err := checker.CheckSchemaOf(ctx, queue)
		switch { // the verb meets other errors itself
		case worker && schema.Is(err):
			log.Warn("the database's tables are not those of this program", "err", err)
		case err == nil && len(differences) > 0:
			log.Warn("the database's functions are not those of this program", "differences", differences, "hint", "run penstock migrate, or the version of penstock that was run last; penstock migrate --check lists all")
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// errHurried is the cause of the end at the second signal.
var errHurried = errors.New("hurried")

// Run runs the parts that cfg describes. The first signal, or the end of ctx, drains it; the second signal ends it at
// once.
func (a *App) Run(ctx context.Context, cfg *config.Config, o run.Options) error {
	if a.Parts != nil {
		return a.Parts(ctx, cfg, o)
	}
	o.Stdout, o.Stderr, o.Database, o.Version = a.Stdout, a.Stderr, a.Place(), a.Version
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
	log := a.Logger()
	stop, err := otlp.Start(ctx)
	if err != nil {
		return terminal.Usage(err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces could not be sent", "err", err) }))
	a.Later(stop)
	return nil
}
