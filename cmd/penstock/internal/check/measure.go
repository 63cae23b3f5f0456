package check

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// The most that measurements of a table's rows read.
const (
	samplePages  = 1000
	sampleRows   = 10_000
	maxToMeasure = 1 << 30 // bytes of a table or an index that pgstattuple may read
)

// lookAtSample finds the largest stored value of each message column among some rows spread over
// the table.
func (l *looker) lookAtSample(ctx context.Context, f *facts) error {
	names := f.readColumns()
	if len(names) == 0 {
		return nil
	}
	about := "how large the contents are"
	err := l.sampleFrom(ctx, f, about, names, f.part())
	if err == nil && f.sample.rows == 0 && f.part() != "" { // few pages have rows, and none was in the sample
		return l.sampleFrom(ctx, f, about, names, "")
	}
	return err
}

// part is the TABLESAMPLE clause that reads about samplePages; empty for a small
// table.
func (f *facts) part() string {
	pages := f.sizes.rows / int64(f.table.blockSize)
	if pages <= samplePages {
		return ""
	}
	return fmt.Sprintf(" tablesample system (%.6f)", 100*float64(samplePages)/float64(pages))
}

func (l *looker) sampleFrom(ctx context.Context, f *facts, about string, names []string, part string) error {
	s := &sample{largest: map[string]int64{}}
	sql := "select count(*)"
	sizes := make([]*int64, len(names))
	places := []any{&s.rows}
	for i, name := range names {
		sql += ", max(pg_column_size(" + quote(name) + "))"
		places = append(places, &sizes[i])
	}
	// Versions 6 and 7 of a uuid begin with the time (RFC 9562).
	if c := f.column(f.cfg.OrderColumns()[0]); c != nil && c.Type == "uuid" {
		sql += ", bool_and((get_byte(uuid_send(" + quote(c.Name) + "), 6) >> 4) in (6, 7))"
		places = append(places, &s.ordered)
	}
	sql += fmt.Sprintf(" from (select %s from %s%s limit %d) s", quoteAll(names), f.tableName(), part, sampleRows)
	err := l.look(ctx, about, func(tx pgx.Tx) error { return tx.QueryRow(ctx, sql).Scan(places...) }, "enable_indexonlyscan = off")
	if err != nil {
		return err
	}
	for i, size := range sizes {
		if size != nil {
			s.largest[names[i]] = *size
		}
	}
	f.sample = s
	return nil
}

// lookAtLateness compares the order of some waiting rows with the order of their commits, if the
// server records commit timestamps (track_commit_timestamp). Delivered rows are left out: marking
// them has created a new version in another transaction.
func (l *looker) lookAtLateness(ctx context.Context, f *facts) error {
	order := f.cfg.OrderColumns()
	first := f.column(order[0])
	if f.settings["track_commit_timestamp"] != "on" || !f.readable() || first == nil {
		return nil
	}
	late := "null::float8"
	if first.Type == "timestamp with time zone" {
		late = "extract(epoch from max(committed - " + quote(first.Name) + "))::float8"
	}
	where := "pg_xact_commit_timestamp(xmin) is not null"
	if w := f.waiting(); w != "" {
		where = w + " and " + where
	}
	// A row is late if one that sorts after it committed before it: a reader may already have passed
	// its place.
	sql := fmt.Sprintf(`select count(*), count(*) filter (where committed > others), %s
		from (select %s, committed, min(committed) over (order by %s rows between 1 following and unbounded following) as others
		        from (select %s, pg_xact_commit_timestamp(xmin) as committed from %s%s where %s limit %d) s) o`,
		late, quoteAll(order), quoteAll(order), quoteAll(order), f.tableName(), f.part(), where, sampleRows)
	var seen lateness
	err := l.look(ctx, "when rows were committed", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, sql).Scan(&seen.rows, &seen.behind, &seen.seconds)
	})
	if err == nil && seen.rows > 0 {
		f.late = &seen
	}
	return err
}

// lookAtSpace measures the space in use with pgstattuple if it is installed and has little enough
// to read.
func (l *looker) lookAtSpace(ctx context.Context, f *facts) error {
	if f.table.partitioned() || f.sizes.rows < bloatBytes && f.sizes.indexes < bloatBytes {
		return nil
	}
	var schema string
	err := l.catalogue(ctx, "the extension pgstattuple", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, statement("extension")).Scan(&schema)
	})
	if isNoRow(err) {
		return nil // there are estimates
	}
	if err != nil {
		return err
	}
	s := &space{indexes: map[string]float64{}}
	call := func(function string) string { return pgx.Identifier{schema, function}.Sanitize() }
	if f.sizes.rows <= maxToMeasure {
		if err := l.catalogue(ctx, "the space in use, by pgstattuple", func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, "select approx_tuple_len::float8, approx_free_space from "+call("pgstattuple_approx")+"($1::oid::regclass)", f.table.oid).
				Scan(&s.used, &s.free)
		}); err != nil {
			return err
		}
		f.space = s
	}
	for _, x := range f.indexes {
		if x.bytes < bloatBytes || x.bytes > maxToMeasure || !x.valid || !strings.HasPrefix(strings.Join(x.signature, ""), "btree ") {
			continue
		}
		var inUse float64
		if err := l.catalogue(ctx, "the space in use of index "+x.name(), func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, `select case when leaf_pages + empty_pages + deleted_pages = 0 then 100
				else avg_leaf_density * leaf_pages / (leaf_pages + empty_pages + deleted_pages) end
				from `+call("pgstatindex")+"($1::oid::regclass)", x.oid).Scan(&inUse)
		}); seen(err) != nil {
			return err
		} else if err == nil {
			f.space = s
			s.indexes[x.name()] = inUse
		}
	}
	return nil
}

func isNoRow(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
