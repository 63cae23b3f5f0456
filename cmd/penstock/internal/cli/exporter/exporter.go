// Package exporter has penstock exporter.
package exporter

import (
	"github.com/spf13/cobra"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/adopt"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/metrics"
)

// Command serves the status of a database as metrics.
func Command(a *cli.App) *cobra.Command {
	var f cli.MetricsFlags
	cmd := &cobra.Command{
		Use:   "exporter",
		Short: "Serve the status of a database to Prometheus",
		Long: `Serve the status of a database to Prometheus, until a signal stops it: what penstock
status shows, and what holds back vacuum. Use it if producers and consumers use SQL
alone: a relay and a worker also serve it (--metrics-listen).

  /metrics   the metrics, which docs/reference/metrics.md lists
  /healthz   200 while the process runs
  /readyz    200 while the database can be read, and the role may read a part of the
             status, else 503 with the reason

The status is read at most once in ten seconds, however often it is scraped, and a read
is given up after five. A part of the status that the role may not read is left out:
penstock_status_readable is 0 for it, and the log says which grant is missing. A member
of pg_monitor also sees what holds back vacuum in other roles' sessions. Adopted
tables are those of the configuration file. There is no password: keep the address on
the loopback, or in a network that only Prometheus reaches.`,
		Example: `  penstock exporter
  penstock exporter --database-url postgres://monitor@db/shop --metrics-listen 0.0.0.0:9464`,
		Args: terminal.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			store, err := a.OpenStore(ctx)
			if err != nil {
				return err
			}
			log, err := a.Logger()
			if err != nil {
				return err
			}
			m, err := f.New(metrics.Options{Store: store, Logger: log})
			if err != nil {
				return err
			}
			adoptions, err := adopt.Configured(a)
			if err != nil {
				return err
			}
			for i := range adoptions {
				table, err := adopt.Open(ctx, a, &adoptions[i])
				if err != nil {
					return err
				}
				a.Later(table.Close)
				m.Table(table.Config.Table, table.Name, table.Adopted.Status)
			}
			if err := f.Serve(a, m); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		},
	}
	f.Add(cmd.Flags(), "127.0.0.1:9464")
	return cmd
}
