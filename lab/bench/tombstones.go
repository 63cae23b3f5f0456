package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/lab/measure"
	"github.com/penstock/penstock/lab/plot"
)

func tombstonesCommand(a *app) *cobra.Command {
	f, cfg := queueBenchFlags{mysql: true}, measure.DefaultTombstones
	cmd := &cobra.Command{
		Use:   "tombstones",
		Short: "Measure how the next event is found behind many that are gone",
		Long: `Consume the first half of a million events, as in "The Curious Case of the
Ever-Increasing Tombstones" (YugabyteDB, 2022), and fetch the next one:

  naive     select … order by ts limit 1
  last_ts   select … where ts > LAST order by ts limit 1, with LAST kept by hand
  penstock  dequeue of the same events as jobs, rolled back each time

That is case prefix. For case scattered every other event of the rest is deleted,
too. --pin adds both with a REPEATABLE READ snapshot that was open before the
deletions. For each it shows the time of one fetch, the median of --fetches, the
pages it asked for, and the ratio to the same fetch from a table and a queue of
which nothing was deleted; the two fetch in turns.

Vacuum stays away from the events: what is measured is how it is until it comes.

On MariaDB with MyRocks, the storage of the published experiment, penstock is a claim
and an ack, outbox a message that is fetched and settled, and instead of pages there
are RocksDB's calls: next, seek, and the steps over what was deleted, which a next or
a seek makes by itself; of the first two ways also how many tombstones are among them.
Ask for the engine: mysql://…?engine=rocksdb.`,
		Example: `  bench tombstones --database-url postgres://postgres@localhost/postgres --pin
  bench tombstones --events 100000 --json
  bench tombstones --database-url 'mysql://root@localhost/?engine=rocksdb'`,
		PreRunE: valid(&cfg),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runQueueBench(a, cmd, f, benchTombstonesTable, benchTombstonesChart, func(ctx context.Context, b benchPostgres) (measure.TombstonesResult, error) {
				cfg.Database, cfg.Pin = b.database, b.pin
				return measure.Tombstones(ctx, cfg)
			})
		},
	}
	f.register(cmd)
	f.registerPin(cmd)
	cmd.Flags().Lookup("pin").Usage = "also with a REPEATABLE READ snapshot held open"
	cmd.Flags().IntVar(&cfg.Events, "events", cfg.Events, "events, of which the first half is consumed")
	cmd.Flags().IntVar(&cfg.Fetches, "fetches", cfg.Fetches, "fetches per measurement, fewer if they take more than 5 s")
	return cmd
}

// tombstoneWays are the columns of a case.
func tombstoneWays(c measure.TombstoneCase) []struct {
	name string
	measure.NextEvent
} {
	ways := []struct {
		name string
		measure.NextEvent
	}{{"naive", c.Naive}, {"last_ts", c.LastTS}, {"penstock", c.Penstock}}
	if c.Outbox != nil {
		ways = append(ways, struct {
			name string
			measure.NextEvent
		}{"outbox", *c.Outbox})
	}
	return ways
}

func tombstoneCaseText(c measure.TombstoneCase) string {
	if c.Pinned {
		return c.Deleted + ", pinned"
	}
	return c.Deleted
}

func benchTombstonesTable(w io.Writer, r measure.TombstonesResult) error {
	if len(r.Cases) > 0 && r.Cases[0].Outbox != nil {
		return rocksDBTombstonesTable(w, r)
	}
	t := terminal.NewTable(w, terminal.Left("DELETED"), terminal.Left("FETCH"), terminal.Right("FRESH MS"), terminal.Right("FIRST MS"), terminal.Right("MS"), terminal.Right("RATIO"),
		terminal.Right("FRESH PAGES"), terminal.Right("PAGES"), terminal.Right("INDEX"), terminal.Right("HEAP"), terminal.Right("FETCHES"))
	for _, c := range r.Cases {
		for _, way := range tombstoneWays(c) {
			t.Row(tombstoneCaseText(c), way.name, fmt.Sprintf("%.3f", way.FreshMS), fmt.Sprintf("%.3f", way.FirstMS), fmt.Sprintf("%.3f", way.MS),
				fmt.Sprintf("%.2f", way.Ratio), terminal.Count(way.FreshPages.All), terminal.Count(way.Pages.All), terminal.Count(way.Pages.Index), terminal.Count(way.Pages.Heap), fmt.Sprint(way.Fetches))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s events; Penstock's largest ratio is %.2f\n", terminal.Count(int64(r.Events)), r.WorstRatio)
	return err
}

func rocksDBTombstonesTable(w io.Writer, r measure.TombstonesResult) error {
	t := terminal.NewTable(w, terminal.Left("DELETED"), terminal.Left("FETCH"), terminal.Right("FRESH MS"), terminal.Right("FIRST MS"), terminal.Right("MS"), terminal.Right("RATIO"),
		terminal.Right("NEXT"), terminal.Right("SEEK"), terminal.Right("SKIPPED"), terminal.Right("TOMBSTONES"), terminal.Right("FETCHES"))
	for _, c := range r.Cases {
		for _, way := range tombstoneWays(c) {
			calls, tombstones := measure.FetchCalls{}, ""
			if way.Pages.RocksDB != nil {
				calls = *way.Pages.RocksDB
			}
			if calls.Tombstones != nil {
				tombstones = terminal.Count(*calls.Tombstones)
			}
			t.Row(tombstoneCaseText(c), way.name, fmt.Sprintf("%.3f", way.FreshMS), fmt.Sprintf("%.3f", way.FirstMS), fmt.Sprintf("%.3f", way.MS),
				fmt.Sprintf("%.2f", way.Ratio), terminal.Count(calls.Next), terminal.Count(calls.Seek), terminal.Count(calls.Skipped), tombstones, fmt.Sprint(way.Fetches))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s events; Penstock's largest ratio is %.2f\n", terminal.Count(int64(r.Events)), r.WorstRatio)
	return err
}

func benchTombstonesChart(r measure.TombstonesResult) plot.Chart {
	panel := plot.Panel{Y: "ms per fetch, median", Log: true, Ticks: []string{"nothing deleted"}}
	pages := plot.Panel{Y: "pages asked for", Log: true, Ticks: []string{"nothing deleted"}}
	for i, c := range r.Cases {
		panel.Ticks = append(panel.Ticks, tombstoneCaseText(c))
		for j, way := range tombstoneWays(c) {
			if i == 0 {
				panel.Series = append(panel.Series, plot.Series{Name: way.name, Points: []plot.Point{{X: 0, Y: way.FreshMS}}})
				pages.Series = append(pages.Series, plot.Series{Name: way.name, Points: []plot.Point{{X: 0, Y: float64(way.FreshPages.All)}}})
			}
			panel.Series[j].Points = append(panel.Series[j].Points, plot.Point{X: float64(i + 1), Y: way.MS})
			pages.Series[j].Points = append(pages.Series[j].Points, plot.Point{X: float64(i + 1), Y: float64(way.Pages.All)})
		}
	}
	pages.Ticks = panel.Ticks
	if len(r.Cases) > 0 && r.Cases[0].Outbox != nil {
		return plot.Chart{
			Title: "The next event behind those that are gone", Subtitle: fmt.Sprintf("%s events, the first half consumed", terminal.Count(int64(r.Events))),
			Panels: []plot.Panel{panel},
		}
	}
	return plot.Chart{
		Title: "The next event behind those that are gone", Subtitle: fmt.Sprintf("%s events, the first half consumed", terminal.Count(int64(r.Events))),
		Panels: []plot.Panel{panel, pages},
	}
}
