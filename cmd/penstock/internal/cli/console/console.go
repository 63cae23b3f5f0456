// Package console has penstock console.
package console

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/doctor"
	"github.com/penstock/penstock/internal/terminal"
)

// Command serves the console.
func Command(a *cli.App) *cobra.Command {
	var f cli.ConsoleFlags
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve a console for the browser, and an HTTP API",
		Long: `Serve a console, until a signal stops it. It shows what penstock status and doctor
print, and the segments and subscriptions of each outbox. It has parked keys, queues
with their groups and running jobs, dead letters by cause and with their contents, and
inboxes. In it you retry or discard dead letters, one or all that match, pause queues
and cancel jobs. Programs do the same at /api/v1, which /api/v1/openapi.json describes.

Without a token, every user of this machine can do everything at 127.0.0.1. Any other
address needs a token. The tokens are in the environment:

  PENSTOCK_CONSOLE_READ_TOKEN      may read
  PENSTOCK_CONSOLE_OPERATE_TOKEN   may read and act

A browser asks for a user, read or operate, and the token as password; programs send
Authorization: Bearer TOKEN. Each action is logged with the role, the address and what
it did.

However many browsers are open, the status is read once a second at most. It counts up
to 1,000 of each kind. PostgreSQL ends every statement after --statement-timeout. Set
that to 0 if the URL sets a timeout, or behind a PgBouncer that does not let it through
(ignore_startup_parameters = statement_timeout).

--database-url may be repeated. Then the first page is a list of the databases. Each
has its own path, the name of the database or of its file, and its own API. The same
holds for the databases of console: databases in the configuration file.

A relay and a worker also serve it, with --console-listen. The section console of the
configuration file has the same settings.`,
		Example: `  penstock console
  PENSTOCK_CONSOLE_OPERATE_TOKEN=$(openssl rand -hex 32) penstock console --listen 0.0.0.0:8484
  penstock console --database-url postgres://localhost/shop --database-url postgres://localhost/billing
  curl -H "Authorization: Bearer $TOKEN" http://localhost:8484/api/v1/status`,
		Args: terminal.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
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
			c.Listen = cmp.Or(c.Listen, cli.ConsoleListen)
			if _, err := a.ServeConsole(cmd.Context(), c, doctor.Console, nil); err != nil {
				return err
			}
			<-cmd.Context().Done()
			return nil
		},
	}
	f.Add(cmd.Flags())
	return cmd
}
