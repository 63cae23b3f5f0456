package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/adopted"
)

// gather collects the facts. Without the table and its columns there is no report; everything else
// may stay unseen.
func (l *looker) gather(ctx context.Context, f *facts) error {
	if err := l.lookAtTable(ctx, f); err != nil {
		return err
	}
	for _, look := range []func(context.Context, *facts) error{
		l.lookAtDefaults, l.lookAtIndexes, l.lookAtSizes, l.lookAtStatistics, l.lookAtTriggers, l.lookAtReferences, l.lookAtPartitions,
		l.lookAtSettings, l.lookAtPrivileges, l.lookAtArchive, l.chooseName,
		l.lookAtSessions, l.lookAtPrepared, l.lookAtSlots, l.lookAtStandbys,
		l.lookAtReads, l.lookAtSample, l.lookAtLateness, l.lookAtSpace,
	} {
		if err := seen(look(ctx, f)); err != nil {
			return err
		}
	}
	return nil
}

func (l *looker) lookAtTable(ctx context.Context, f *facts) error {
	t := &f.table
	var schema, name string
	err := l.look(ctx, "the table", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, statement("resolve"), f.cfg.TableIdentifier().Sanitize()).Scan(&schema, &name)
	})
	switch {
	case err == errUnseen: // for example, a schema without the right to use it
		return fmt.Errorf("looking for the table: %s", l.unseen[len(l.unseen)-1].Why)
	case isNoRow(err):
		return noTable(&f.cfg)
	case err != nil:
		return err
	}
	t.id = pgx.Identifier{schema, name}
	var options []string
	err = l.catalogue(ctx, "the table", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, statement("table"), schema, name).Scan(&t.oid, &t.kind, &t.persistence, &t.hidesRows, &options,
			&t.version, &t.server, &t.blockSize, &t.role, &t.schemaUsage)
	})
	if err != nil {
		if isNoRow(err) { // dropped meanwhile
			return noTable(&f.cfg)
		}
		return l.essential(err)
	}
	t.options = map[string]string{}
	for _, o := range options {
		if k, v, ok := strings.Cut(o, "="); ok {
			t.options[k] = v
		}
	}
	err = list(ctx, l, "its columns", "columns", &f.columns, func(c *column) []any {
		return []any{&c.number, &c.Name, &c.Type, &c.category, &c.NotNull, &c.Generated, &c.length, &c.bound, &c.cache, &c.sequence, &c.NoSelect, &c.NoUpdate}
	}, t.oid)
	for i := range f.columns {
		f.columns[i].Kind = adopted.PostgresKind(f.columns[i].Type, f.columns[i].category)
	}
	return l.essential(err)
}

// essential makes an error of a refused query.
func (l *looker) essential(err error) error {
	if err == errUnseen {
		u := l.unseen[len(l.unseen)-1]
		return fmt.Errorf("looking at %s: %s", u.What, u.Why)
	}
	return err
}

func (l *looker) lookAtDefaults(ctx context.Context, f *facts) error {
	type expression struct {
		number int16
		text   string
	}
	var all []expression
	err := list(ctx, l, "the columns' defaults", "defaults", &all, func(e *expression) []any { return []any{&e.number, &e.text} }, f.table.oid)
	for _, e := range all {
		for i := range f.columns {
			if f.columns[i].number == e.number {
				f.columns[i].expression = e.text
			}
		}
	}
	return err
}

func (l *looker) lookAtIndexes(ctx context.Context, f *facts) error {
	return list(ctx, l, "the indexes", "indexes", &f.indexes, func(x *index) []any {
		x.id = make(pgx.Identifier, 2)
		return []any{&x.oid, &x.id[0], &x.id[1], &x.valid, &x.building, &x.unique, &x.needed, &x.keys, &x.included, &x.signature,
			&x.predicate, &x.depends, &x.bytes, &x.entries, &x.scans}
	}, f.table.oid)
}

func (l *looker) lookAtSizes(ctx context.Context, f *facts) error {
	return l.catalogue(ctx, "the table's size", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, statement("sizes"), f.table.oid).Scan(&f.sizes.rows, &f.sizes.indexes, &f.sizes.total)
	})
}

func (l *looker) lookAtStatistics(ctx context.Context, f *facts) error {
	err := l.catalogue(ctx, "the table's statistics", func(tx pgx.Tx) error {
		var s statistics
		var known *bool // of no partition
		err := tx.QueryRow(ctx, statement("statistics"), f.table.oid).
			Scan(&known, &s.rows, &s.live, &s.dead, &s.updates, &s.hot, &s.scans, &s.vacuumedAgo)
		s.known = known != nil && *known
		f.stats = &s
		return err
	})
	if err != nil {
		f.stats = nil
		return err
	}
	return l.catalogue(ctx, "the columns' statistics", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, statement("widths"), f.table.id[0], f.table.id[1]).Scan(&f.width)
	})
}

func (l *looker) lookAtTriggers(ctx context.Context, f *facts) error {
	return list(ctx, l, "the triggers", "triggers", &f.triggers, func(t *trigger) []any {
		return []any{&t.name, &t.kind, &t.definition, &t.function, &t.conditional, &t.constraint}
	}, f.table.oid)
}

func (l *looker) lookAtReferences(ctx context.Context, f *facts) error {
	return list(ctx, l, "the foreign keys", "references", &f.incoming, func(r *reference) []any {
		r.table = make(pgx.Identifier, 2)
		return []any{&r.name, &r.table[0], &r.table[1], &r.columns, &r.action, &r.indexed}
	}, f.table.oid)
}

func (l *looker) lookAtPartitions(ctx context.Context, f *facts) error {
	if !f.table.partitioned() {
		return nil
	}
	return list(ctx, l, "the partitions", "partitions", &f.leaves, func(id *pgx.Identifier) []any {
		*id = make(pgx.Identifier, 2)
		return []any{&(*id)[0], &(*id)[1]}
	}, f.table.oid)
}

func (l *looker) lookAtSettings(ctx context.Context, f *facts) error {
	var all [][2]string
	err := list(ctx, l, "the server's settings", "settings", &all, func(s *[2]string) []any { return []any{&s[0], &s[1]} })
	f.settings = map[string]string{}
	for _, s := range all {
		f.settings[s[0]] = s[1]
	}
	return err
}

func (l *looker) lookAtPrivileges(ctx context.Context, f *facts) error {
	return l.catalogue(ctx, "the role's rights", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, statement("privileges"), f.table.oid).Scan(&f.mayDelete)
	})
}

func (l *looker) lookAtArchive(ctx context.Context, f *facts) error {
	if f.cfg.Delivered != adopted.Archive {
		return nil
	}
	f.archive = &archiveFacts{}
	var schema, name string
	err := l.look(ctx, "the archive", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, statement("resolve"), f.cfg.ArchiveIdentifier().Sanitize()).Scan(&schema, &name)
	})
	if isNoRow(err) {
		return nil
	}
	if err != nil {
		f.archive = nil
		return err
	}
	f.archive.exists = true
	return l.catalogue(ctx, "the archive", func(tx pgx.Tx) error {
		var columns []string
		err := tx.QueryRow(ctx, statement("archive"), schema, name).Scan(&f.archive.mayInsert, &columns)
		for _, c := range f.columns {
			if !slices.Contains(columns, c.Name) {
				f.archive.missing = append(f.archive.missing, c.Name)
			}
		}
		return err
	})
}

// chooseName finds an unused name for an index. An invalid index of that name was left by a failed
// attempt: Fix replaces it.
func (l *looker) chooseName(ctx context.Context, f *facts) error {
	var candidates []string
	for i := range 20 {
		end := "_waiting_idx"
		if i > 0 {
			end = fmt.Sprintf("_waiting_idx%d", i+1)
		}
		candidates = append(candidates, shorten(f.table.id[1], 63-len(end))+end)
	}
	f.name = candidates[0]
	var taken []string
	err := list(ctx, l, "the names of indexes", "names", &taken, func(s *string) []any { return []any{s} }, f.table.id[0], candidates)
	for _, name := range candidates {
		broken := slices.ContainsFunc(f.indexes, func(x index) bool { return x.name() == name && !x.valid })
		if broken || !slices.Contains(taken, name) {
			f.name = name
			break
		}
	}
	return err
}

// shorten cuts a name to a number of bytes, between characters.
func shorten(name string, most int) string {
	for len(name) > most {
		runes := []rune(name)
		name = string(runes[:len(runes)-1])
	}
	return name
}

func (l *looker) lookAtSessions(ctx context.Context, f *facts) error {
	err := list(ctx, l, "other sessions", "sessions", &f.sessions, func(s *session) []any {
		return []any{&s.pid, &s.user, &s.app, &s.state, &s.seconds, &s.ageXacts, &s.query, &s.waitsFor}
	})
	if slices.ContainsFunc(f.sessions, func(s session) bool { return s.seconds == nil }) {
		l.unseen = append(l.unseen, Unseen{"since when the sessions of other roles are in a transaction",
			"this role may not see it; their age in transactions was used", "grant pg_read_all_stats to " + quote(f.table.role)})
	}
	return err
}

func (l *looker) lookAtPrepared(ctx context.Context, f *facts) error {
	return list(ctx, l, "prepared transactions", "prepared", &f.prepared, func(p *prepared) []any { return []any{&p.gid, &p.owner, &p.seconds, &p.ageXacts} })
}

func (l *looker) lookAtSlots(ctx context.Context, f *facts) error {
	return list(ctx, l, "replication slots", "slots", &f.slots, func(s *slot) []any { return []any{&s.name, &s.kind, &s.active, &s.age, &s.catalog, &s.wal} })
}

func (l *looker) lookAtStandbys(ctx context.Context, f *facts) error {
	err := list(ctx, l, "standbys", "standbys", &f.standbys, func(s *standby) []any { return []any{&s.app, &s.age, &s.seen} })
	if slices.ContainsFunc(f.standbys, func(s standby) bool { return !s.seen }) {
		l.unseen = append(l.unseen, Unseen{"whether queries on standbys hold back vacuum", "this role may not see it", "grant pg_read_all_stats to " + quote(f.table.role)})
	}
	return err
}

// readColumns are the columns of a message, with that of the order first, without those that the
// table lacks.
func (f *facts) readColumns() []string {
	var names []string
	for _, name := range append(f.cfg.OrderColumns(), f.cfg.MessageColumns()...) {
		if f.column(name) != nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// list calls look for each row of a query on the catalogue, after scanning it into the places that into
// returns.
func list[T any](ctx context.Context, l *looker, what, name string, to *[]T, into func(*T) []any, args ...any) error {
	return l.catalogue(ctx, what, func(tx pgx.Tx) error {
		found, err := tx.Query(ctx, statement(name), args...)
		if err != nil {
			return err
		}
		*to, err = pgx.CollectRows(found, func(row pgx.CollectableRow) (v T, err error) { return v, row.Scan(into(&v)...) })
		return err
	})
}

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
