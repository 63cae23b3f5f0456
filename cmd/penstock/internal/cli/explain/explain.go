// Package explain has penstock explain.
package explain

import (
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
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

func Command(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain OUTBOX|QUEUE",
		Short: "Run the statements of a relay or a worker, and show the rows and pages they read",
		Long: `Run the statements that every message of an outbox or every job of a queue goes
through, under EXPLAIN (ANALYZE, BUFFERS), in transactions that are rolled back:

  fetch     up to 1,000 messages from a subscription's durable cursor on
  settle    writing that cursor
  dequeue   the next job, in a transaction
  claim     up to 100 jobs; ack ends them

and show for each the rows and pages that it read:

  rows      messages or jobs that it returned or ended
  entries   index entries that it read
  dead      entries among them without a row: deleted, rolled back, or taken by
            another transaction, and not cleaned away
  scanned   rows that it read without an index
  pages     pages that it asked for, each time counted; below: all pages of the tables
  ms        in the server, with the cost of measuring
  trips     round trips that a relay or worker makes for it

In a queue with groups it takes jobs of the first group that has any. To others this
looks like a worker that takes jobs in a transaction that rolls back. For some
milliseconds these jobs cannot be claimed, and a few may come after later ones. The
role must be able to run the relay; for a queue on PostgreSQL it must own the schema.

On YugabyteDB and CockroachDB (--profile portable) figures of the storage follow:
requests to read, write and flush, rows scanned, and entries sought and skipped,
including deleted ones. A figure that the release does not report is 0. On SQLite
there is a plan instead of figures.

The exit code is 3 if a statement reads far more than it returns.`,
		Example: `  penstock explain orders
  penstock explain emails --json | jq '.statements[] | select(.slow)'`,
		Args: terminal.Exactly("OUTBOX|QUEUE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := cli.OpenWith[doctor.Explainer](cmd.Context(), a, "plans to explain")
			if err != nil {
				return err
			}
			name := args[0]
			found, err := store.ExplainOutbox(cmd.Context(), name)
			if errors.Is(err, penstock.ErrNoOutbox) {
				found, err = store.ExplainQueue(cmd.Context(), name)
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
		},
	}
	return a.WithJSON(cmd, "one JSON line with every figure")
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
