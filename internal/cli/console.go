package cli

import (
	"context"
	"errors"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/config"
	"github.com/penstock/penstock/internal/console"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/web"
)

// ConsoleFlags say where to serve the console, and to whom.
type ConsoleFlags struct {
	listen, basePath, title string
	redact                  []string
	timeout                 time.Duration
}

// Add adds the flags.
func (f *ConsoleFlags) Add(flags *pflag.FlagSet) {
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8484", "the address; one that other machines reach needs a token")
	flags.StringVar(&f.basePath, "base-path", "", "where it is behind a proxy, as in /penstock")
	flags.StringVar(&f.title, "title", "", "tells this console from another")
	flags.StringArrayVar(&f.redact, "redact", nil, "do not show the values of headers and JSON members of this name; may be repeated")
	flags.DurationVar(&f.timeout, "statement-timeout", 5*time.Second, "after which PostgreSQL ends a statement; 0 leaves that to its own setting")
}

// The environment has what a list of processes must not show.
const readToken, operateToken = "PENSTOCK_CONSOLE_READ_TOKEN", "PENSTOCK_CONSOLE_OPERATE_TOKEN"

// Serve serves a console over the database of the flags until the verb ends.
func (f *ConsoleFlags) Serve(ctx context.Context, a *App, findings func(*App, penstock.Store) func(context.Context) ([]doctor.Finding, error)) error {
	store, err := f.open(ctx, a)
	if err != nil {
		return err
	}
	shown, ok := store.(console.Store)
	if !ok {
		return Usage(errors.New("this database's driver has no console: use PostgreSQL or SQLite"))
	}
	log, err := a.Logger()
	if err != nil {
		return err
	}
	if f.basePath != "" && !strings.HasPrefix(f.basePath, "/") {
		return Usage(errors.New("--base-path: write it with a slash first, as in /penstock"))
	}
	var credentials []web.Credential
	for role, variable := range map[string]string{console.RoleRead: readToken, console.RoleOperate: operateToken} {
		if secret := a.Getenv(variable); secret != "" {
			a.Stderr.Hide(secret)
			credentials = append(credentials, web.Credential{Secret: secret, Name: role}, web.Credential{User: role, Secret: secret, Name: role})
		}
	}
	c := console.New(console.Options{Store: shown, Findings: findings(a, store), BasePath: f.basePath, Redact: f.redact, Title: f.title, Logger: log})
	options := web.Options{Listen: f.listen, Credentials: credentials, Logger: log}
	if err := options.Check(); err != nil {
		if field, ok := errors.AsType[*penstock.FieldError](err); ok && strings.Contains(field.Hint, "token") {
			field.Hint = "set " + readToken + " or " + operateToken + ", or listen on 127.0.0.1"
		}
		return Usage(err)
	}
	server, err := web.Serve(options, c)
	if err != nil {
		return err
	}
	a.Later(server)
	log.Info("serving the console", "url", "http://"+server.Addr+f.basePath+"/", "pid", os.Getpid())
	return nil
}

// open opens the database with a limit for each statement.
func (f *ConsoleFlags) open(ctx context.Context, a *App) (penstock.Store, error) {
	at, _, err := a.Database()
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(at)
	if f.timeout <= 0 || config.NoTables(at) != "" || err != nil || u.Query().Has("statement_timeout") {
		return a.OpenStore(ctx)
	}
	q := u.Query()
	q.Set("statement_timeout", strconv.FormatInt(max(f.timeout.Milliseconds(), 1), 10))
	if !q.Has("pool_max_conns") {
		q.Set("pool_max_conns", "4")
	}
	u.RawQuery = q.Encode()
	return a.OpenStoreAt(ctx, u.String())
}
