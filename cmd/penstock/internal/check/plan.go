package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// maxPlanBytes bounds the plan that is read: a query on one table has a few kilobytes, with a
// thousand partitions a few megabytes.
const maxPlanBytes = 16 << 20

// plan is the answer to EXPLAIN (FORMAT JSON). With ANALYZE it has been run.
type plan struct {
	Root          node    `json:"Plan"`
	ExecutionTime float64 `json:"Execution Time"` // ms; 0 without ANALYZE
}

// node is a step of a plan. Figures of rows are per loop, those of buffers are
// sums over all loops, with the buffers of the steps below.
type node struct {
	Type     string   `json:"Node Type"`
	Relation string   `json:"Relation Name"`
	Index    string   `json:"Index Name"`
	Turn     string   `json:"Scan Direction"`
	Cond     string   `json:"Index Cond"`
	Filter   string   `json:"Filter"`
	SortKey  []string `json:"Sort Key"`
	Presort  []string `json:"Presorted Key"`
	Method   string   `json:"Sort Method"`
	Space    string   `json:"Sort Space Type"` // Memory or Disk

	PlanRows float64  `json:"Plan Rows"`
	Rows     float64  `json:"Actual Rows"` // since PostgreSQL 18 with fractions
	Loops    *float64 `json:"Actual Loops"`

	Filtered    float64 `json:"Rows Removed by Filter"`
	Rechecked   float64 `json:"Rows Removed by Index Recheck"`
	HeapFetches float64 `json:"Heap Fetches"` // a sum

	Hit  float64 `json:"Shared Hit Blocks"`
	Read float64 `json:"Shared Read Blocks"`

	Plans []node `json:"Plans"`
}

// readPlan reads the answer of EXPLAIN (FORMAT JSON).
func readPlan(text []byte) (*plan, error) {
	if len(text) > maxPlanBytes {
		return nil, fmt.Errorf("the plan has %d bytes, more than the limit of %d", len(text), maxPlanBytes)
	}
	var plans []plan
	if err := json.Unmarshal(text, &plans); err != nil {
		return nil, fmt.Errorf("reading the plan: %w", err)
	}
	if len(plans) != 1 || plans[0].Root.Type == "" {
		return nil, errors.New("reading the plan: there is none in the answer")
	}
	return &plans[0], nil
}

// analyzed is true if the plan was run.
func (p *plan) analyzed() bool { return p.Root.Loops != nil }

// rows is how many the query returned, or would by the planner's estimate.
func (p *plan) rows() float64 {
	if p.analyzed() {
		return p.Root.Rows * p.Root.loops()
	}
	return p.Root.PlanRows
}

// pages is how many pages the query touched, cached or not. A page counts each time it was
// accessed.
func (p *plan) pages() float64 { return p.Root.Hit + p.Root.Read }

func (n *node) loops() float64 {
	if n.Loops == nil {
		return 0
	}
	return *n.Loops
}

// walk calls f for the node and every one below, the outer first.
func (n *node) walk(f func(*node, int)) { n.walkFrom(0, f) }

func (n *node) walkFrom(depth int, f func(*node, int)) {
	f(n, depth)
	for i := range n.Plans {
		n.Plans[i].walkFrom(depth+1, f)
	}
}

// find returns the nodes of one of the types.
func (p *plan) find(types ...string) (found []*node) {
	p.Root.walk(func(n *node, _ int) {
		if slices.Contains(types, n.Type) {
			found = append(found, n)
		}
	})
	return found
}

// filtered is how many rows were read from the table and discarded.
func (p *plan) filtered() (rows float64) {
	p.Root.walk(func(n *node, _ int) { rows += (n.Filtered + n.Rechecked) * n.loops() })
	return rows
}

// excerptLines bounds an excerpt: a plan over hundreds of partitions repeats
// itself.
const excerptLines = 24

// excerpt is the plan as EXPLAIN shows it, without costs.
func (p *plan) excerpt() []string {
	var lines []string
	p.Root.walk(func(n *node, depth int) { lines = append(lines, n.lines(depth, p.analyzed())...) })
	if more := len(lines) - excerptLines; more > 0 {
		lines = append(lines[:excerptLines], fmt.Sprintf("… and %d lines more", more))
	}
	return lines
}

func (n *node) lines(depth int, analyzed bool) []string {
	indent := strings.Repeat("      ", depth)
	head := n.Type
	if n.Turn == "Backward" {
		head += " Backward"
	}
	if n.Index != "" {
		head += " using " + n.Index
	}
	if n.Relation != "" {
		head += " on " + n.Relation
	}
	var figures []string
	if analyzed {
		figures = append(figures, "rows="+number(n.Rows*n.loops()))
		if n.Hit+n.Read > 0 {
			figures = append(figures, "pages="+number(n.Hit+n.Read))
		}
	} else {
		figures = append(figures, "estimated rows="+number(n.PlanRows))
	}
	head += "  (" + strings.Join(figures, " ") + ")"
	arrow := ""
	if depth > 0 {
		arrow = "->  "
		indent = indent[:len(indent)-4]
	}
	lines := []string{indent + arrow + head}
	under := strings.Repeat(" ", len(indent)+len(arrow)+2)
	for _, fact := range []struct{ name, text string }{
		{"Index Cond", n.Cond}, {"Sort Key", strings.Join(n.SortKey, ", ")}, {"Presorted Key", strings.Join(n.Presort, ", ")},
		{"Sort Method", strings.TrimSuffix(n.Method+" ("+n.Space+")", " ()")}, {"Filter", n.Filter}, {"Rows Removed by Filter", number(n.Filtered * n.loops())},
		{"Rows Removed by Index Recheck", number(n.Rechecked * n.loops())}, {"Heap Fetches", number(n.HeapFetches)},
	} {
		if fact.text != "" && fact.text != "0" {
			lines = append(lines, under+fact.name+": "+fact.text)
		}
	}
	return lines
}

// Settings under which a plan uses an index that gives the order, if there is one, whatever the
// statistics are.
var pinned = []string{
	"enable_seqscan = off", "enable_bitmapscan = off", "enable_sort = off",
	"enable_indexscan = on", "enable_indexonlyscan = on",
	"max_parallel_workers_per_gather = 0", "jit = off",
}

// pinnedFor returns those settings, without sorting at all. If no index gives the whole order,
// they allow sorting rows that are equal in the first columns.
func pinnedFor(incremental string) []string {
	return append(slices.Clone(pinned), "enable_incremental_sort = "+incremental)
}

// maxBlindPages is the size above which a table without an index that gives the order is not read:
// 800 MiB with pages of 8 KiB.
const maxBlindPages = 100_000

// lookAtReads explains the read, and runs it if that is bounded.
func (l *looker) lookAtReads(ctx context.Context, f *facts) error {
	if !f.readable() {
		return nil
	}
	f.reads.sql = f.read(f.cfg.Batch, "")
	var err error
	if f.reads.natural, err = l.explain(ctx, "the plan of the read", f.reads.sql, false, nil); err != nil {
		return err
	}
	var settings []string
	for _, incremental := range []string{"off", "on"} {
		settings = pinnedFor(incremental)
		if f.reads.pinned, err = l.explain(ctx, "the plan of the read", f.reads.sql, false, settings); err != nil {
			return err
		}
		if inOrder(f.reads.pinned) {
			break
		}
	}
	if !inOrder(f.reads.pinned) && f.sizes.rows > maxBlindPages*int64(f.table.blockSize) {
		l.unseen = append(l.unseen, Unseen{What: "how long the read takes", Why: "without an index it would read the whole table, which is large",
			Hint: "create the index and run the check again"})
		return nil
	}
	if f.reads.first, err = l.explain(ctx, "rows before the first one of a read", f.read(1, ""), true, settings); err != nil {
		f.reads.endless = err == errUnseen && l.refusal == tookTooLong
		return err
	}
	if f.reads.batch, err = l.explain(ctx, "rows that a read meets in a batch", f.reads.sql, true, settings); err != nil {
		return err
	}
	return l.lookFromFirst(ctx, f, settings)
}

// lookFromFirst runs the unchanged read with a low-water mark at the first row.
func (l *looker) lookFromFirst(ctx context.Context, f *facts, settings []string) error {
	if f.reads.first.pages() < dirtyPages || !inOrder(f.reads.pinned) {
		return nil
	}
	order := f.cfg.OrderColumns()[0]
	var first *string
	err := l.look(ctx, "the first row", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, strings.Replace(f.read(1, ""), "select ", "select "+quote(order)+"::text as first_place, ", 1)).Scan(nullable(&first, len(f.readColumns()))...)
	}, settings...)
	if isNoRow(err) || first == nil && err == nil {
		return nil
	}
	if err != nil {
		return err
	}
	f.reads.marked, err = l.explain(ctx, "the read with a low-water mark", f.read(1, quote(order)+" >= $1"), true, settings, *first)
	return err
}

// nullable are places for the first column and for n others, which are skipped.
func nullable(first **string, n int) []any {
	places := make([]any, n+1)
	places[0] = first
	return places
}

// read is the statement that reads the next rows, without the locks of claims, which require a
// transaction that may write.
func (f *facts) read(limit int, also string) string {
	var where []string
	for _, condition := range []string{f.waiting(), also} {
		if condition != "" {
			where = append(where, condition)
		}
	}
	sql := "select " + quoteAll(f.readColumns()) + " from " + f.tableName()
	if len(where) > 0 {
		sql += " where " + strings.Join(where, " and ")
	}
	return sql + fmt.Sprintf(" order by %s limit %d", quoteAll(f.cfg.OrderColumns()), limit)
}

// explain returns the plan of sql, run if asked.
func (l *looker) explain(ctx context.Context, what, sql string, run bool, settings []string, args ...any) (*plan, error) {
	options := "format json, costs on"
	if run {
		options += ", analyze, buffers, timing off"
	}
	var p *plan
	err := l.look(ctx, what, func(tx pgx.Tx) error {
		var text []byte
		err := tx.QueryRow(ctx, "explain ("+options+") "+sql, append([]any{pgx.QueryExecModeExec}, args...)...).Scan(&text)
		if err == nil {
			p, err = readPlan(text)
		}
		return err
	}, settings...)
	return p, err
}

// inOrder is true for a plan that reads an index in the required order and at most sorts rows that
// are equal in its first columns.
func inOrder(p *plan) bool {
	return p != nil && len(p.find("Sort", "Seq Scan", "Bitmap Heap Scan", "Gather", "Gather Merge")) == 0 &&
		len(p.find("Index Scan", "Index Only Scan")) > 0
}

// indexes are the names of the indexes that a plan reads.
func (p *plan) indexes() (names []string) {
	if p == nil {
		return nil
	}
	p.Root.walk(func(n *node, _ int) {
		if n.Index != "" {
			names = append(names, n.Index)
		}
	})
	return names
}
