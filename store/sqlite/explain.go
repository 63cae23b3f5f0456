package sqlite

import (
	"context"
	"regexp"
	"strings"

	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/tables"
)

var _ doctor.Explainer = (*Store)(nil)

var parameter = regexp.MustCompile(`\?\d*|:[a-z_]+`)

// unbound is a statement without its parameters, of which only the plan matters.
func unbound(table, text string) string {
	text = tables.Render(spelled.Replace(text), func(name string) (string, bool) {
		column, _, list := tables.In(name)
		switch {
		case name == "table", name == "jobs":
			return table, true
		case name == "waits":
			return string(waits(0)), true
		case name == "collate":
			return "", true
		case name == "sign":
			return "-", true
		case list:
			return column + " in (select value from json_each(null))", true
		}
		return "null", true
	})
	return parameter.ReplaceAllString(text, "null")
}

// ExplainOutbox implements doctor.Explainer. It returns plans, because SQLite does not count rows.
func (s *Store) ExplainOutbox(ctx context.Context, outbox string) ([]doctor.Statement, error) {
	if err := s.guard.Ready(ctx); err != nil {
		return nil, err
	}
	if _, err := tables.FindOutbox(ctx, onTables{s}, onTables{s}, outbox, ""); err != nil {
		return nil, err
	}
	return s.plans(ctx, outbox, Table(outbox), []string{"fetch", "settle"}, statement("fetch"), statement("settle"))
}

// ExplainQueue implements doctor.Explainer.
func (s *Store) ExplainQueue(ctx context.Context, queue string) ([]doctor.Statement, error) {
	if err := s.guard.Ready(ctx); err != nil {
		return nil, err
	}
	if _, err := s.queues.Queue(queue).RowIn(ctx, onTables{s}); err != nil {
		return nil, s.explain(err)
	}
	return s.plans(ctx, queue, QueueTable(queue), []string{"claim", "ack"}, statement("claim"), statement("end_jobs"))
}

func (s *Store) plans(ctx context.Context, of, table string, names []string, statements ...string) (found []doctor.Statement, err error) {
	for i, text := range statements {
		rows, err := s.readers.QueryContext(ctx, "explain query plan "+unbound(table, text))
		if err != nil {
			return nil, s.explain(err)
		}
		f := doctor.Statement{Of: of, Name: names[i], Verdict: "finds its rows through indexes"}
		for rows.Next() {
			var id, parent, unused int
			var step string
			if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
				return nil, s.explain(err)
			}
			f.Plan = append(f.Plan, step)
			if what, scans := strings.CutPrefix(step, "SCAN "); scans && strings.HasPrefix(what, "penstock_") || strings.Contains(step, "AUTOMATIC") {
				f.Slow, f.Verdict = true, "reads a table without an index: "+step
			}
		}
		if err := rows.Err(); err != nil {
			return nil, s.explain(err)
		}
		found = append(found, f)
	}
	return found, nil
}
