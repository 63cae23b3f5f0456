package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

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
	if f.reads.first, err = l.explain(ctx, "what the read meets before its first row", f.read(1, ""), true, settings); err != nil {
		f.reads.endless = err == errUnseen && l.refusal == tookTooLong
		return err
	}
	if f.reads.batch, err = l.explain(ctx, "what the read meets in a batch", f.reads.sql, true, settings); err != nil {
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
