package check

import (
	"fmt"
	"slices"
	"strings"
)

// fit says whether the contents of a message fit into an index row.
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
			Title: fmt.Sprintf("contents are near what fits into index %s", quote(x.name())),
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
