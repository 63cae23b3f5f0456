// Package console has penstock console, and serves the console for other verbs.
package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/adopt"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/doctor"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	pages "github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/web"
	"github.com/penstock/penstock/metrics"
)

// Command serves the console.
func Command(a *cli.App) *cobra.Command {
	var f Flags
	cmd := terminal.Verb("console", "Serve a console for the browser, and an HTTP API", func(cmd *cobra.Command, _ []string) error {
		c, err := f.FromFile(a)
		if err != nil {
			return err
		}
		if len(a.DatabaseURLs) == 0 {
			for _, url := range c.Databases {
				a.DatabaseURL = url.Reveal()
				a.DatabaseURLs = append(a.DatabaseURLs, a.DatabaseURL)
			}
		}
		c.Listen = cmp.Or(c.Listen, Listen)
		if _, err := Serve(cmd.Context(), a, c, nil); err != nil {
			return err
		}
		<-cmd.Context().Done()
		return nil
	})
	f.Add(cmd.Flags())
	return cmd
}

// Listen is the console's default address.
const Listen = "127.0.0.1:8484"

// Flags set where to serve the console, and how.
type Flags struct {
	given   config.Console
	timeout time.Duration
	flags   *pflag.FlagSet
}

// Add adds the flags of penstock console.
func (f *Flags) Add(flags *pflag.FlagSet) {
	f.flags = flags
	flags.StringVar(&f.given.Listen, "listen", Listen, "`address` to serve at; one that other machines reach needs a token")
	flags.StringVar(&f.given.BasePath, "base-path", "", "`path` of the console behind a proxy, as in /penstock")
	flags.StringVar(&f.given.Title, "title", "", "`text` in the title, where there are several consoles")
	flags.StringArrayVar(&f.given.Redact, "redact", nil, "do not show the values of headers and JSON members of this `name`; may be repeated")
	flags.DurationVar(&f.timeout, "statement-timeout", 5*time.Second, "`duration` after which PostgreSQL ends a statement; 0 leaves that to its own setting")
}

// AddListen adds the flag of verbs that also serve the console.
func (f *Flags) AddListen(flags *pflag.FlagSet) {
	f.flags = flags
	flags.StringVar(&f.given.Listen, "console-listen", "", "serve the console at this `address`, as in "+Listen+" (penstock console --help)")
}

// Set replaces the file's settings with the given flags.
func (f *Flags) Set(c *config.Console) error {
	for name, set := range map[string]func(){
		"listen": func() { c.Listen = f.given.Listen }, "console-listen": func() { c.Listen = f.given.Listen },
		"base-path": func() { c.BasePath = f.given.BasePath }, "title": func() { c.Title = f.given.Title }, "redact": func() { c.Redact = f.given.Redact },
		"statement-timeout": func() { c.StatementTimeout = config.Age(cmp.Or(f.timeout, -1)) },
	} {
		if f.flags.Changed(name) {
			set()
		}
	}
	c.SetDefaults()
	return terminal.Usage(c.Validate())
}

// FromFile combines the flags and the file. A file that was not named may have mistakes: most of it does not concern
// the console.
func (f *Flags) FromFile(a *cli.App) (c config.Console, err error) {
	if a.ConfigFile != "" || a.DatabaseURL == "" {
		cfg, err := a.LoadConfig()
		if err != nil && a.ConfigFile != "" {
			return c, err
		}
		if err == nil && cfg != nil {
			c = cfg.Console
		}
	}
	return c, f.Set(&c)
}

// ServeDuring serves the console while a verb runs, if the flag has an address. The file's address is for the relay.
func (f *Flags) ServeDuring(ctx context.Context, a *cli.App, m *metrics.Metrics) error {
	if f.given.Listen == "" {
		return nil
	}
	c, err := f.FromFile(a)
	if err != nil {
		return err
	}
	_, err = Serve(ctx, a, c, m)
	return err
}

// The environment has the values that a list of processes must not show.
const readToken, operateToken = "PENSTOCK_CONSOLE_READ_TOKEN", "PENSTOCK_CONSOLE_OPERATE_TOKEN"

// Serve serves a console for the database of the flags until the verb ends, if it has an address, and returns its URL.
// m has the latencies of this process. It is nil if the process neither relays nor works; then the console may show several
// databases.
func Serve(ctx context.Context, a *cli.App, c config.Console, m *metrics.Metrics) (at string, err error) {
	if c.Listen == "" {
		return "", nil
	}
	log := a.Logger()
	var credentials []web.Credential
	for role, variable := range map[string]string{pages.RoleRead: readToken, pages.RoleOperate: operateToken} {
		if secret := a.Getenv(variable); secret != "" {
			a.Stderr.Hide(secret)
			credentials = append(credentials, web.Credential{Secret: secret, Name: role}, web.Credential{User: role, Secret: secret, Name: role})
		}
	}
	if err := checkTokens(a, c.Listen); err != nil {
		return "", terminal.Usage(err)
	}
	options := web.Options{Listen: c.Listen, Credentials: credentials, Logger: log}
	several := m == nil && len(a.DatabaseURLs) > 1
	if err := options.Check(); err != nil {
		if field, ok := errors.AsType[*penstock.FieldError](err); ok && strings.Contains(field.Hint, "token") {
			field.Hint = "set " + readToken + " or " + operateToken + ", or listen on 127.0.0.1"
		}
		return "", terminal.Usage(err)
	}
	var all []pages.Options
	var places []string
	names := map[string]bool{"static": true}
	for _, over := range eachDatabase(a, several) {
		places = append(places, over.Place())
		store, err := open(ctx, over, time.Duration(c.StatementTimeout))
		if err != nil {
			return "", err
		}
		of, ok := store.(pages.Store)
		if !ok {
			return "", terminal.Usage(errors.New("this database's driver has no console: use PostgreSQL or SQLite"))
		}
		o := pages.Options{Store: of, Findings: doctor.Findings(over, store), BasePath: c.BasePath, Redact: c.Redact, Logger: log}
		if !several {
			tables, err := adopt.OpenAll(ctx, over)
			if err != nil {
				return "", err
			}
			for _, table := range tables {
				o.Adopted = append(o.Adopted, pages.Adopted{Table: table.Config.Table, Subscription: table.Name, Store: table.Adopted})
			}
		}
		if m != nil {
			o.Waits = m.Waits()
		}
		if several {
			name := nameOf(over.DatabaseURL)
			for n := 2; o.Title == "" || names[o.Title]; n++ {
				if o.Title = name; names[name] {
					o.Title += "-" + strconv.Itoa(n)
				}
			}
			names[o.Title] = true
			o.Logger = log.With("database", o.Title)
		} else {
			o.Title = c.Title
		}
		all = append(all, o)
	}
	var shown interface {
		http.Handler
		Watch(ctx context.Context)
	} = pages.New(all[0])
	if several {
		shown = pages.NewSeveral(c.BasePath, c.Title, all)
	}
	server, err := web.Serve(options, shown)
	if err != nil {
		return "", err
	}
	go shown.Watch(ctx)
	a.Later(server.Close)
	at = "http://" + server.Addr + strings.TrimRight(c.BasePath, "/") + "/"
	log.Info("serving the console", "url", at, "database", strings.Join(places, "; "), "pid", os.Getpid())
	return at, nil
}

// minTokenBytes is the least length of a token if other machines can try to guess it.
const minTokenBytes = 32

// checkTokens refuses tokens that do not identify a role, or that can be guessed.
func checkTokens(a *cli.App, listen string) error {
	const hint = "make one with: openssl rand -hex 32"
	read, operate := a.Getenv(readToken), a.Getenv(operateToken)
	if read != "" && read == operate {
		return &penstock.FieldError{Field: readToken, Problem: "is that of " + operateToken, Hint: "give each role its own token; " + hint}
	}
	local := web.Options{Listen: listen}
	for name, token := range map[string]string{readToken: read, operateToken: operate} {
		if token != "" && len(token) < minTokenBytes && local.Check() != nil {
			return &penstock.FieldError{Field: name, Problem: fmt.Sprintf("has fewer than %d characters, and other machines reach %s", minTokenBytes, listen), Hint: hint}
		}
	}
	return nil
}

// eachDatabase is a, or one for each database of the flags.
func eachDatabase(a *cli.App, several bool) (all []*cli.App) {
	if !several {
		return []*cli.App{a}
	}
	for _, url := range a.DatabaseURLs {
		over := a.Over(url, a.Schema)
		a.Later(func() error { over.Close(); return nil })
		all = append(all, over)
	}
	return all
}

// nameOf is a database's name in a path: its own name, or that of its file.
func nameOf(at string) string {
	name, isFile := strings.CutPrefix(at, "sqlite:")
	if isFile {
		name = strings.TrimSuffix(path.Base(name), path.Ext(name))
	} else if u, err := url.Parse(at); err == nil && u.Scheme != "" {
		name = cmp.Or(strings.Trim(u.Path, "/"), u.Hostname())
	} else {
		name = "" // an unparsable URL may have a password anywhere
	}
	name = strings.Trim(regexp.MustCompile(`[^\p{L}\p{N}._-]+`).ReplaceAllString(name, "-"), "-.")
	return cmp.Or(name, "database")
}

// open opens the database with a limit for each statement and its own connections, so that its readers delay
// no relay or worker.
func open(ctx context.Context, a *cli.App, timeout time.Duration) (driver.Database, error) {
	at, _, err := a.Database()
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(at)
	if timeout <= 0 || drivers.NotPostgres(at) != "" || err != nil || u.Query().Has("statement_timeout") {
		return a.OpenStore(ctx)
	}
	q := u.Query()
	q.Set("statement_timeout", strconv.FormatInt(max(timeout.Milliseconds(), 1), 10))
	if !q.Has("pool_max_conns") {
		q.Set("pool_max_conns", "4")
	}
	u.RawQuery = q.Encode()
	return a.OpenStoreAt(ctx, u.String())
}
