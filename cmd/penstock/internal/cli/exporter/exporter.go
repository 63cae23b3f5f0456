// Package exporter has penstock exporter.
package exporter

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/adopt"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/metrics"
)

// Command serves the status of a database as metrics.
func Command(a *cli.App) *cobra.Command {
	var f cli.MetricsFlags
	cmd := terminal.Verb("exporter", "Serve the status of a database to Prometheus",
		a.Opened(func(ctx context.Context, store driver.Database, _ []string) error {
			m, err := f.New(metrics.Options{Store: store, Logger: a.Logger()})
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
		}))
	f.Add(cmd.Flags(), "127.0.0.1:9464")
	return cmd
}
