package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/config"
)

// app is what every verb shares: the streams and the global flags.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	stderr *scrubber
	getenv func(string) string

	// What tests replace: the store that a URL opens, and whether somebody is
	// there to ask.
	open        func(ctx context.Context, url, schema string) (penstock.Store, error)
	interactive bool
	answers     *bufio.Reader // of stdin; nil until something was asked

	databaseURL string
	schema      string
	configFile  string
	logLevel    string
	logFormat   string
}

const rootLong = `Penstock is a transactional outbox in your own database, and the relay that
carries every committed message to a broker: once confirmed, and in order per
key. It is job queues in that database, too, and the worker that runs them.

Try it without installing anything:

  penstock demo

Use it, here with SQLite:

  export PENSTOCK_DATABASE_URL=sqlite:shop.db   # or postgres://…
  penstock migrate                              # once, and after an upgrade
  penstock outbox create orders
  penstock publish orders --topic order.paid --key 42 --payload '{"total":10}'
  penstock relay --outbox orders --sink stdout  # or amqp://…, nats://…, kafka://…, https://…

Relay a table that an application fills already, as it is:

  penstock adopt check --preset dotnet          # what is wrong with it
  penstock relay --adopt dotnet --sink amqp://localhost/

Have jobs done:

  penstock queue create mails
  penstock enqueue mails '{"to":"a@example.com"}'
  penstock work mails --exec cat                # a command of yours, once per job

Have a consumer's messages take effect once, in order per key:

  penstock inbox create billing                 # penstock inbox --help tells how it is used

` + exitCodesHelp

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "penstock",
		Short:         "A transactional outbox and job queues in your own database, and their relay",
		Long:          rootLong,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownVerb,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return misuse(err) })
	flags := root.PersistentFlags()
	flags.StringVar(&a.databaseURL, "database-url", "", "postgres://user:password@host/db or sqlite:FILE (default $PENSTOCK_DATABASE_URL)")
	flags.StringVar(&a.schema, "schema", "", "PostgreSQL schema of Penstock's tables (default \"penstock\")")
	flags.StringVar(&a.configFile, "config", "", "configuration file (default penstock.yaml, if it is there)")
	flags.StringVar(&a.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&a.logFormat, "log-format", "text", "text or json")
	for _, group := range []struct {
		id, title string
		verbs     []*cobra.Command
	}{
		{"any", "Setting up and watching:", []*cobra.Command{a.demoCommand(), a.migrateCommand(), a.statusCommand(), a.deadCommand(), a.benchCommand(), a.versionCommand()}},
		{"outbox", "Outboxes and their relay:", []*cobra.Command{a.outboxCommand(), a.publishCommand(), a.relayCommand(), a.tailCommand(), a.parkedCommand(),
			a.replayCommand(), a.subscriptionCommand(), a.adoptCommand()}},
		{"queue", "Job queues:", []*cobra.Command{a.queueCommand(), a.enqueueCommand(), a.workCommand(), a.jobCommand(), a.scheduleCommand()}},
		{"inbox", "Consumers:", []*cobra.Command{a.inboxCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, verb := range group.verbs {
			verb.GroupID = group.id
		}
		root.AddCommand(group.verbs...)
	}
	a.completeNames(root)
	root.SetHelpCommandGroupID("any")
	root.SetCompletionCommandGroupID("any")
	return root
}

// defaultConfigFile is read when nothing else names a database.
const defaultConfigFile = "penstock.yaml"

var errNoDatabase = errors.New("no database is given: pass --database-url postgres://… or sqlite:FILE, set PENSTOCK_DATABASE_URL, or pass --config penstock.yaml")

// database says which database to use, from the first of: --database-url, the file of
// --config, $PENSTOCK_DATABASE_URL and ./penstock.yaml, which must agree.
func (a *app) database() (url, schema string, err error) {
	if a.databaseURL != "" {
		if a.configFile != "" {
			_, schema, err = config.Loader{}.Database(a.configFile)
		}
		return a.databaseURL, cmp.Or(a.schema, schema), usage(err)
	}
	variable := a.getenv("PENSTOCK_DATABASE_URL")
	if a.configFile == "" && variable != "" {
		schema, err = a.agreed(variable)
		return variable, cmp.Or(a.schema, schema), err
	}
	cfg, err := a.loadConfig()
	if err != nil {
		return "", "", err
	}
	if cfg == nil {
		return "", "", usage(errNoDatabase)
	}
	return cfg.DatabaseURL.Reveal(), cmp.Or(a.schema, cfg.Schema), nil
}

// agreed checks that ./penstock.yaml, if it is there, means the database of the
// variable, and returns its schema. Whoever set one and forgot the other would work on
// the wrong database.
func (a *app) agreed(variable string) (schema string, err error) {
	if _, err := os.Stat(defaultConfigFile); err != nil {
		return "", nil
	}
	// Only this is read: most verbs need nothing else of it.
	url, schema, err := config.Loader{}.Database(defaultConfigFile)
	if err != nil {
		return "", usage(err)
	}
	a.stderr.hide(url.Reveal())
	if url != "" && !config.SameDatabase(url.Reveal(), variable) {
		return "", usage(fmt.Errorf("PENSTOCK_DATABASE_URL is %s, and ./%s has %s: pass --config %[2]s or --database-url to say which is meant, or unset the variable",
			config.URL(variable), defaultConfigFile, url))
	}
	return schema, nil
}

// loadConfig reads the file of --config, or ./penstock.yaml if it is there. It
// returns nil if there is none.
func (a *app) loadConfig() (*config.Config, error) {
	file := a.configFile
	if file == "" {
		if _, err := os.Stat(defaultConfigFile); err != nil {
			return nil, nil
		}
		file = defaultConfigFile
	}
	url := a.databaseURL
	if url == "" && a.configFile == "" {
		if url = a.getenv("PENSTOCK_DATABASE_URL"); url != "" {
			if _, err := a.agreed(url); err != nil {
				return nil, err
			}
		}
	}
	cfg, err := config.Loader{DatabaseURL: url}.Load(file)
	return cfg, usage(err)
}

// tell says what was done: fields for programs, or a sentence.
func (a *app) tell(asJSON bool, fields any, sentence string, args ...any) error {
	if asJSON {
		return json.NewEncoder(a.stdout).Encode(fields)
	}
	_, err := fmt.Fprintf(a.stdout, sentence, args...)
	return err
}
