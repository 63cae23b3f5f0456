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
			tables, err := adopt.OpenAll(ctx, a)
			if err != nil {
				return err
			}
			for _, table := range tables {
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
