package check

import (
	"fmt"
	"strings"
)

const (
	// bloatBytes is the least bloat that is reported: less costs nothing.
	bloatBytes = 8 << 20
	// bloatUsed is the least share of a table that its rows take, and of an index that its entries
	// take. Autovacuum keeps ordinary tables above it.
	bloatUsed = 0.4
	// rowOverhead is a row's header and its line pointer, with padding.
	rowOverhead = 24 + 4 + 4
	// entryOverhead is that of an index entry, and entryWidth the size of a key with a time and a
	// uuid. A B-tree's pages are filled to 90 %, and to 50 % after splits.
	entryOverhead = 8 + 4
	entryWidth    = 32
)

// findSpace: files that are much larger than their contents.
func findSpace(f *facts) []Finding {
	if f.table.partitioned() {
		return nil
	}
	return append(f.tableBloat(), f.indexBloat()...)
}

func (f *facts) tableBloat() []Finding {
	if f.sizes.rows < bloatBytes {
		return nil
	}
	var used float64
	how := "by pgstattuple"
	switch s := f.stats; {
	case f.space != nil && f.space.used+f.space.free > 0:
		used = f.space.used
	case s != nil && s.known && f.width != nil:
		used = float64(s.live) * (*f.width + rowOverhead)
		how = "estimated from statistics"
	default:
		return nil
	}
	if used >= bloatUsed*float64(f.sizes.rows) {
		return nil
	}
	find := Finding{Severity: Warning, Code: CodeBloat,
		Title: fmt.Sprintf("the table takes %s for rows of %s", bytes(float64(f.sizes.rows)), bytes(used)),
		Detail: "The rest is dead rows and free space. Reads through the right index do not notice; reads of the whole table, backups and caches do. " +
			"Vacuum makes the space free for new rows, and gives back only what is empty at the end of the file.",
		Evidence: Evidence{Figures: []Figure{{"size", float64(f.sizes.rows), Bytes}, {"rows, " + how, used, Bytes}}},
		Fix: []Statement{
			f.vacuum(),
			{SQL: "vacuum full " + f.tableName(), Risk: "writes the table anew and needs the space for it; it cannot be read or written meanwhile. pg_repack and pg_squeeze do the same without that", Alternative: true},
		}}
	if f.stats != nil {
		find.Evidence.Figures = append(find.Evidence.Figures, Figure{"live rows", float64(f.stats.live), Rows}, Figure{"dead rows", float64(f.stats.dead), Rows})
	}
	return []Finding{find}
}

func (f *facts) indexBloat() (found []Finding) {
	for i := range f.indexes {
		x := &f.indexes[i]
		if !x.valid || x.bytes < bloatBytes || !strings.HasPrefix(strings.Join(x.signature, ""), "btree ") {
			continue
		}
		inUse, how := f.indexUse(x)
		if inUse < 0 || inUse >= bloatUsed {
			continue
		}
		found = append(found, Finding{Severity: Warning, Code: CodeIndexBloat,
			Title: fmt.Sprintf("the index %s takes %s and is %.0f %% full", quote(x.name()), bytes(float64(x.bytes)), 100*inUse),
			Detail: "Its pages hold few entries or none: those of rows that are gone, or that vacuum could not remove yet. A page is used again only once it is empty. " +
				"Writing it anew helps for as long as vacuum keeps up.",
			Evidence: Evidence{Figures: []Figure{{"size", float64(x.bytes), Bytes}, {"in use, " + how, 100 * inUse, Percent}}},
			Fix:      []Statement{{SQL: "reindex index concurrently " + x.id.Sanitize(), Concurrently: true, Risk: "needs the space of a second index, and waits for transactions that are open"}}})
	}
	return found
}

// indexUse is the share of an index's pages that entries fill, or negative if it cannot be
// computed. If the index includes contents, its entries are wider than is known.
func (f *facts) indexUse(x *index) (share float64, how string) {
	if f.space != nil {
		if percent, measured := f.space.indexes[x.name()]; measured {
			return percent / 100, "by pgstattuple"
		}
	}
	if x.entries < 0 || f.stats == nil || !f.stats.known {
		return -1, ""
	}
	entries := x.entries // as of the last vacuum or analyze
	if x.predicate == "" {
		entries = float64(f.stats.live)
	}
	width := float64(entryWidth)
	if len(x.included) > 0 && f.width != nil {
		width = max(width, *f.width)
	}
	return min(1, entries*(width+entryOverhead)/0.7/float64(x.bytes)), "estimated from statistics"
}
