package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

const (
	// dirtyPages is how many pages the read of one row may touch: a B-tree has at most five levels,
	// plus a page of the table, and some slack.
	dirtyPages = 32
	// dirtyPerRow is how many pages a row of a batch may cost: a part of an index page, and a page of the
	// table if the orders differ.
	dirtyPerRow = 2
)

// findReadIndex: the read needs an index that gives waiting rows in order.
func findReadIndex(f *facts) []Finding {
	p := f.reads.pinned
	switch {
	case p == nil:
		return nil
	case !inOrder(p):
		return []Finding{f.missingIndex()}
	}
	var found []Finding
	if len(p.find("Incremental Sort")) > 0 {
		found = append(found, f.tieBreak(p))
	}
	if filters := scanFilters(p); len(filters) > 0 {
		found = append(found, f.notPartial(p))
	}
	if n := f.reads.natural; n != nil && !inOrder(n) && f.sizes.rows >= bloatBytes {
		found = append(found, Finding{Severity: Note, Code: CodePlanUnstable,
			Title: "left alone, the planner would not use the index that gives the order",
			Detail: "Penstock asks for that index whatever the statistics say, so its own reads are not affected. A loop that you write would sort. " +
				"Statistics that are out of date are the usual cause, or settings such as random_page_cost and enable_indexscan.",
			Evidence: Evidence{Plan: n.excerpt()},
			Fix:      []Statement{{SQL: "analyze " + f.tableName()}}})
	}
	return found
}

func scanFilters(p *plan) (filters []string) {
	for _, n := range p.find("Index Scan", "Index Only Scan") {
		if n.Filter != "" {
			filters = append(filters, n.Filter)
		}
	}
	return filters
}

func (f *facts) missingIndex() Finding {
	order := quoteAll(f.cfg.OrderColumns())
	find := Finding{Severity: Warning, Code: CodeMissingIndex,
		Title: fmt.Sprintf("no index gives the waiting rows in the order of %s", order),
		Detail: "Each read of a batch goes over the table and sorts. With an index in that order it reads as many rows as it returns, however large the table is." +
			f.partialReason(),
		Fix: f.readIndex()}
	find.Evidence = f.readEvidence()
	return find
}

func (f *facts) partialReason() string {
	if f.waiting() == "" {
		return ""
	}
	return " The index has waiting rows only: it stays small while delivered rows remain in the table."
}

// readEvidence is the result of running the read, or else its plan.
func (f *facts) readEvidence() Evidence {
	p := f.reads.batch
	if p == nil {
		return Evidence{Plan: f.reads.pinned.excerpt()}
	}
	return Evidence{Plan: p.excerpt(), Figures: append(batchFigures(p), Figure{"time", p.ExecutionTime / 1000, Seconds})}
}

func batchFigures(p *plan) []Figure {
	figures := []Figure{{"rows returned", p.rows(), Rows}, {"pages touched", p.pages(), Pages}}
	if n := p.filtered(); n > 0 {
		figures = append(figures, Figure{"rows read and thrown away", n, Rows})
	}
	return figures
}

func (f *facts) tieBreak(p *plan) Finding {
	return Finding{Severity: Note, Code: CodeTieBreak,
		Title: fmt.Sprintf("the index that gives the order lacks the id %s at its end", quote(f.cfg.Columns.ID)),
		Detail: "Rows that are alike in the columns before it are sorted by the id at each read. That is little work, unless many rows share a value, " +
			"as those of one bulk insert share the time of its transaction.",
		Evidence: Evidence{Plan: p.excerpt()},
		Fix:      f.readIndex()}
}

func (f *facts) notPartial(p *plan) Finding {
	find := Finding{Severity: Warning, Code: CodeNotPartial,
		Title: "the index that gives the order also has delivered rows",
		Detail: "The read steps over every delivered row that lies before a waiting one. Penstock starts at its low-water mark and so steps over those above it only; " +
			"its sweep and its first read, and any loop without a mark, walk over all of them." + f.partialReason(),
		Evidence: Evidence{Plan: p.excerpt()},
		Fix:      f.readIndex()}
	if f.reads.batch != nil {
		find.Evidence = f.readEvidence()
	}
	return find
}

// readIndex are the statements that create the index for the read.
func (f *facts) readIndex() []Statement {
	key, where := quoteAll(f.cfg.OrderColumns()), f.waiting()
	include, fits := f.contents()
	covering := ""
	if fits == always {
		covering = include
	}
	if f.table.partitioned() {
		return f.partitionedIndex(key, covering, where)
	}
	id := pgx.Identifier{f.table.id[0], f.name}
	statements := []Statement{createIndex(id, f.table.id, false, key, covering, where, "reads the table twice, and waits for transactions that are open")}
	if fits == sofar {
		s := createIndex(id, f.table.id, false, key, include, where, fmt.Sprintf(
			"an insert whose contents make the index row larger than %s bytes fails, and the business transaction with it; the largest seen have %s. Every message is written twice",
			number(float64(f.maxIndexRow())), number(float64(f.largestRow()))))
		s.Alternative = true
		statements = append(statements, s)
	}
	return statements
}

// partitionedIndex creates the index on each partition. The index on the whole table then finds
// them and has nothing to build.
func (f *facts) partitionedIndex(key, include, where string) (statements []Statement) {
	for _, leaf := range f.leaves {
		name := shorten(leaf[1], 51) + "_waiting_idx"
		statements = append(statements, createIndex(pgx.Identifier{leaf[0], name}, leaf, false, key, include, where, ""))
	}
	whole := createIndex(pgx.Identifier{f.table.id[0], f.name}, f.table.id, false, key, include, where,
		"takes the indexes of the partitions as they are; writers wait for that moment")
	whole.SQL, whole.Concurrently, whole.Creates = strings.Replace(whole.SQL, " concurrently", "", 1), false, nil
	return append(statements, whole)
}

func createIndex(id, table pgx.Identifier, unique bool, key, include, where, risk string) Statement {
	sql := "create index"
	if unique {
		sql = "create unique index"
	}
	sql += fmt.Sprintf(" concurrently %s on %s (%s)", quote(id[1]), table.Sanitize(), key)
	if include != "" {
		sql += " include (" + include + ")"
	}
	if where != "" {
		sql += " where " + where
	}
	return Statement{SQL: sql, Concurrently: true, Risk: risk, Creates: &Index{id[0], id[1]}}
}

const prefixDetail = "Rows that were deleted or marked stay in the index until vacuum removes them, and it cannot while a snapshot that could see them is open. " +
	"Each read without a low-water mark walks over them again. Penstock keeps one, so it walks there at its start and in its sweep only."

func (f *facts) vacuum() Statement {
	return Statement{SQL: "vacuum " + f.tableName(), Risk: "reads the whole table; removes only rows that no open snapshot can see"}
}

// findScan: dead rows that the read meets. A plan's rows do not include them, only the pages that
// it touched do.
func findScan(f *facts) []Finding {
	first, batch := f.reads.first, f.reads.batch
	if !inOrder(f.reads.pinned) {
		return nil
	}
	var found []Finding
	if f.reads.endless && len(scanFilters(f.reads.pinned)) == 0 {
		return append(found, Finding{Severity: Warning, Code: CodeDeadPrefix,
			Title:    fmt.Sprintf("the read of one row takes longer than %v, with an index in its order: it begins with dead rows", f.opts.Timeout),
			Detail:   prefixDetail,
			Evidence: Evidence{Plan: f.reads.pinned.excerpt()},
			Fix:      []Statement{f.vacuum()}})
	}
	if first == nil || batch == nil {
		return nil
	}
	prefix := first.pages() - first.filtered() - first.rows()
	if prefix > dirtyPages {
		find := Finding{Severity: Warning, Code: CodeDeadPrefix,
			Title:    fmt.Sprintf("the read touches %s pages before the first row: it begins with dead rows", number(first.pages())),
			Detail:   prefixDetail,
			Evidence: Evidence{Plan: first.excerpt(), Figures: []Figure{{"rows returned", first.rows(), Rows}, {"pages touched", first.pages(), Pages}}},
			Fix:      []Statement{f.vacuum()}}
		if m := f.reads.marked; m != nil {
			find.Evidence.Figures = append(find.Evidence.Figures, Figure{"pages touched from the first row on", m.pages(), Pages})
		}
		found = append(found, find)
	}
	rows := batch.rows()
	if along := batch.pages() - max(prefix, 0); along-batch.filtered() > dirtyPerRow*rows+2*dirtyPages {
		found = append(found, Finding{Severity: Warning, Code: CodeDeadRows,
			Title: fmt.Sprintf("the read touches %.1f pages for each row: dead rows lie between the waiting ones", along/max(rows, 1)),
			Detail: "They are scattered, so a low-water mark does not help: vacuum has to remove them. It goes by the number of dead rows in the table, " +
				"see the settings of autovacuum below if they are mentioned, and by the oldest open snapshot.",
			Evidence: Evidence{Plan: batch.excerpt(), Figures: batchFigures(batch)},
			Fix:      []Statement{f.vacuum()}})
	}
	return found
}

// fit reports whether the contents of a message fit into an index row.
type fit uint8

const (
	never  fit = iota
	sofar      // every one seen does, by far, but the types guarantee nothing
	always     // by their types
)

// An index row in bytes: its header, the null bitmap, and up to seven bytes of
// padding for each column.
const (
	indexRowHeader = 16
	columnPadding  = 7
	// ampleness is how many times larger than the largest contents seen the limit must be before a
	// covering index is suggested.
	ampleness = 4
)

// maxIndexRow is the most bytes of a B-tree row: a third of a page, so that each page
// has room for three. 2,704 with pages of 8 KiB; BTMaxItemSize in nbtree.h, version 4
// of the index.
func (f *facts) maxIndexRow() int64 {
	align := func(n int) int { return (n + 7) &^ 7 }
	const (
		pageHeader = 24 // with three item pointers of 4 bytes
		special    = 16
		heapTID    = 8
	)
	third := (f.table.blockSize - align(pageHeader+3*4) - align(special)) / 3
	return int64(third&^7 - heapTID)
}

// contents are the quoted columns to include in an index that alone answers the read, and whether
// they fit.
func (f *facts) contents() (include string, fits fit) {
	rest := f.includable()
	if len(rest) == 0 {
		return "", never
	}
	include, fits = quoteAll(rest), always
	total := int64(indexRowHeader)
	for _, name := range f.readColumns() {
		c := f.column(name)
		switch {
		case c.length > 0:
			total += int64(c.length) + columnPadding
		case c.bound > 0:
			total += int64(c.bound) + columnPadding
		default:
			fits = sofar
		}
	}
	if fits == always && total <= f.maxIndexRow() {
		return include, always
	}
	if f.sample == nil || f.sample.rows == 0 || f.largestRow()*ampleness > f.maxIndexRow() {
		return include, never
	}
	return include, sofar
}

// includable are the columns that the read returns beyond the index's key.
func (f *facts) includable() []string {
	order := f.cfg.OrderColumns()
	return slices.DeleteFunc(f.readColumns(), func(s string) bool { return slices.Contains(order, s) })
}

// largestRow is the size of a covering index's row if one message had the largest value seen in
// each column.
func (f *facts) largestRow() int64 {
	total := int64(indexRowHeader)
	if f.sample == nil {
		return total
	}
	for _, name := range f.readColumns() {
		total += f.sample.largest[name] + columnPadding
	}
	return total
}

// findContents: an index that includes the contents refuses values that are too large for it.
func findContents(f *facts) (found []Finding) {
	if f.sample == nil || f.sample.rows == 0 {
		return nil
	}
	for i := range f.indexes {
		x := &f.indexes[i]
		size, unbounded := f.largestIn(x)
		if !unbounded || size*2 <= f.maxIndexRow() || !strings.HasPrefix(strings.Join(x.signature, " "), "btree ") {
			continue
		}
		found = append(found, Finding{Severity: Warning, Code: CodeContentTooBig,
			Title: fmt.Sprintf("contents are near the limit of index %s", quote(x.name())),
			Detail: fmt.Sprintf("A row of a B-tree has at most %s bytes. An insert with larger contents fails, and the business transaction with it. "+
				"Reads of a batch need the columns of the order in the index, not the contents: create one without them, then drop this one.", number(float64(f.maxIndexRow()))),
			Evidence: Evidence{Figures: []Figure{{"largest contents seen", float64(size), Bytes}, {"the limit", float64(f.maxIndexRow()), Bytes}, {"rows looked at", float64(f.sample.rows), Rows}}},
			Fix:      f.replaceIndex(x)})
	}
	if include, fits := f.contents(); fits == never && include != "" && f.reads.pinned != nil && !inOrder(f.reads.pinned) && f.sizes.rows > 0 {
		found = append(found, Finding{Severity: Note, Code: CodeContentTooBig,
			Title: "the contents are too large for a covering index",
			Detail: fmt.Sprintf("A row of a B-tree has at most %s bytes, and an insert that needs more fails. So the index that is suggested has the columns of the order alone: "+
				"a batch then reads one page of the table for each row at most.", number(float64(f.maxIndexRow()))),
			Evidence: Evidence{Figures: []Figure{{"largest contents seen", float64(f.largestRow()), Bytes}, {"the limit", float64(f.maxIndexRow()), Bytes}, {"rows looked at", float64(f.sample.rows), Rows}}}})
	}
	return found
}

// replaceIndex creates an index without the contents and drops x.
func (f *facts) replaceIndex(x *index) []Statement {
	drop := Statement{SQL: "drop index concurrently " + x.id.Sanitize(), Concurrently: true, Risk: "queries that used it have to do without"}
	if f.table.partitioned() {
		return nil
	}
	return []Statement{f.readIndex()[0], drop}
}

// largestIn is the size of an index's row with the largest values seen, and whether it includes
// columns of unlimited length.
func (f *facts) largestIn(x *index) (size int64, unbounded bool) {
	size = indexRowHeader
	for _, number := range slices.Concat(x.keys, x.included) {
		for _, c := range f.columns {
			if c.number == number {
				size += f.sample.largest[c.Name] + columnPadding
				unbounded = unbounded || c.length < 0 && slices.Contains(x.included, number)
			}
		}
	}
	return size, unbounded
}
