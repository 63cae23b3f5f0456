// Package explain has penstock explain.
package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

func Command(a *cli.App) *cobra.Command {
	return a.WithJSON(terminal.Verb("explain OUTBOX|QUEUE", "Run the statements of a relay or a worker, and show the rows and pages they read",
		a.Opened(func(ctx context.Context, database driver.Database, args []string) error {
			store, ok := database.(doctor.Explainer)
			if !ok {
				return terminal.Usage(errors.New("this database's driver has no plans to explain: use PostgreSQL or SQLite"))
			}
			name := args[0]
			found, err := store.ExplainOutbox(ctx, name)
			if errors.Is(err, penstock.ErrNoOutbox) {
				found, err = store.ExplainQueue(ctx, name)
			}
			if errors.Is(err, penstock.ErrNoQueue) {
				err = penstock.WithHint(fmt.Errorf("there is no outbox and no queue %q", name), "penstock status lists them")
			}
			if err != nil {
				return err
			}
			if err := show(a, found); err != nil {
				return err
			}
			if slices.ContainsFunc(found, func(s doctor.Statement) bool { return s.Slow }) {
				return &terminal.ExitError{Code: terminal.ExitCheck, Err: errors.New("a statement reads far more than it returns: see its verdict")}
			}
			return nil
		})), "one JSON line with every figure")
}

func show(a *cli.App, found []doctor.Statement) error {
	if a.JSON {
		return json.NewEncoder(a.Stdout).Encode(map[string]any{"statements": append([]doctor.Statement{}, found...)})
	}
	if len(found) == 0 {
		_, err := io.WriteString(a.Stdout, "it has no subscription, so nothing is fetched\n")
		return err
	}
	var below strings.Builder
	table := terminal.NewTable(a.Stdout, terminal.Cut("of", 30), terminal.Left("statement"), terminal.Right("rows"), terminal.Right("entries"), terminal.Right("dead"), terminal.Right("scanned"), terminal.Right("pages"), terminal.Right("ms"), terminal.Right("trips"))
	table.Fit = columns
	for i := range found {
		s := &found[i]
		figure := func(n int64) string {
			if !s.Measured {
				return ""
			}
			return strconv.FormatInt(n, 10)
		}
		ms := ""
		if s.Measured {
			ms = strconv.FormatFloat(s.Seconds*1e3, 'f', 2, 64)
		}
		table.Row(s.Of, s.Name, figure(s.Rows), figure(s.Entries), figure(s.Dead), figure(s.Scanned), figure(s.Pages), ms, figure(int64(s.RoundTrips)))
		fmt.Fprintln(&below, terminal.Wrap(s.Of+" "+s.Name+": "+s.Verdict, "  ", columns))
		if g := s.Storage; g != nil && *g != (doctor.Storage{}) {
			fmt.Fprintf(&below, "    storage: %d reads, %d writes, %d flushes, %d rows scanned, %d seeks, %d nexts\n", g.Reads, g.Writes, g.Flushes, g.Rows, g.Seeks, g.Nexts)
		}
		for _, step := range s.Plan {
			fmt.Fprintln(&below, "    "+shell.Visible(step))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if found[0].Measured {
		fmt.Fprintf(&below, "\nThe tables have %s pages, with their indexes. Above, a page counts each time it was asked for.\n", strconv.FormatInt(found[0].TablePages, 10))
	}
	_, err := io.WriteString(a.Stdout, "\n"+below.String())
	return err
}

const columns = 80
