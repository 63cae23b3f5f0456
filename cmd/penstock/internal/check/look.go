package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/adopted"
)

// gather fills in the facts. Without the table and its columns there is no report;
// everything else may stay unseen.
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
	case err == errUnseen: // a schema without the right to use it, say
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
		if isNoRow(err) { // dropped since
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
	err = l.catalogue(ctx, "its columns", func(tx pgx.Tx) (err error) {
		f.columns, err = rows(ctx, tx, statement("columns"), []any{t.oid}, func(c *column) []any {
			return []any{&c.number, &c.Name, &c.Type, &c.Collation, &c.NotNull, &c.Generated, &c.length, &c.bound, &c.cache, &c.sequence, &c.NoSelect, &c.NoUpdate}
		})
		for i := range f.columns {
			c := &f.columns[i]
			c.Kind, c.Collation = adopted.PostgresKind(c.Type, c.Collation), ""
		}
		return err
	})
	return l.essential(err)
}

// essential makes what was not seen an error.
func (l *looker) essential(err error) error {
	if err == errUnseen {
		u := l.unseen[len(l.unseen)-1]
		return fmt.Errorf("looking at %s: %s", u.What, u.Why)
	}
	return err
}

func (l *looker) lookAtDefaults(ctx context.Context, f *facts) error {
	return l.catalogue(ctx, "the columns' defaults", func(tx pgx.Tx) error {
		type expression struct {
			number int16
			text   string
		}
		all, err := rows(ctx, tx, statement("defaults"), []any{f.table.oid}, func(e *expression) []any { return []any{&e.number, &e.text} })
		for _, e := range all {
			for i := range f.columns {
				if f.columns[i].number == e.number {
					f.columns[i].expression = e.text
				}
			}
		}
		return err
	})
}

func (l *looker) lookAtIndexes(ctx context.Context, f *facts) error {
	return l.catalogue(ctx, "the indexes", func(tx pgx.Tx) (err error) {
		f.indexes, err = rows(ctx, tx, statement("indexes"), []any{f.table.oid}, func(x *index) []any {
			x.id = make(pgx.Identifier, 2)
			return []any{&x.oid, &x.id[0], &x.id[1], &x.valid, &x.building, &x.unique, &x.needed, &x.keys, &x.included, &x.signature,
				&x.predicate, &x.depends, &x.bytes, &x.entries, &x.scans}
		})
		return err
	})
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
	return l.catalogue(ctx, "the triggers", func(tx pgx.Tx) (err error) {
		f.triggers, err = rows(ctx, tx, statement("triggers"), []any{f.table.oid}, func(t *trigger) []any {
			return []any{&t.name, &t.kind, &t.definition, &t.function, &t.conditional, &t.constraint}
		})
		return err
	})
}

func (l *looker) lookAtReferences(ctx context.Context, f *facts) error {
	return l.catalogue(ctx, "the foreign keys", func(tx pgx.Tx) (err error) {
		f.incoming, err = rows(ctx, tx, statement("references"), []any{f.table.oid}, func(r *reference) []any {
			r.table = make(pgx.Identifier, 2)
			return []any{&r.name, &r.table[0], &r.table[1], &r.columns, &r.action, &r.indexed}
		})
		return err
	})
}

func (l *looker) lookAtPartitions(ctx context.Context, f *facts) error {
	if !f.table.partitioned() {
		return nil
	}
	return l.catalogue(ctx, "the partitions", func(tx pgx.Tx) (err error) {
		f.leaves, err = rows(ctx, tx, statement("partitions"), []any{f.table.oid}, func(id *pgx.Identifier) []any {
			*id = make(pgx.Identifier, 2)
			return []any{&(*id)[0], &(*id)[1]}
		})
		return err
	})
}

func (l *looker) lookAtSettings(ctx context.Context, f *facts) error {
	return l.catalogue(ctx, "the server's settings", func(tx pgx.Tx) error {
		type setting struct{ name, value string }
		all, err := rows(ctx, tx, statement("settings"), nil, func(s *setting) []any { return []any{&s.name, &s.value} })
		f.settings = map[string]string{}
		for _, s := range all {
			f.settings[s.name] = s.value
		}
		return err
	})
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

// chooseName finds a name for an index to create that nothing else has. An index
// of that name which is not valid is what a failed attempt left: Fix replaces it.
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
	return l.catalogue(ctx, "the names of indexes", func(tx pgx.Tx) error {
		taken, err := rows(ctx, tx, statement("names"), []any{f.table.id[0], candidates}, func(s *string) []any { return []any{s} })
		for _, name := range candidates {
			broken := slices.ContainsFunc(f.indexes, func(x index) bool { return x.name() == name && !x.valid })
			if broken || !slices.Contains(taken, name) {
				f.name = name
				break
			}
		}
		return err
	})
}

// shorten cuts a name to so many bytes, between characters.
func shorten(name string, most int) string {
	for len(name) > most {
		runes := []rune(name)
		name = string(runes[:len(runes)-1])
	}
	return name
}

func (l *looker) lookAtSessions(ctx context.Context, f *facts) error {
	return l.catalogue(ctx, "other sessions", func(tx pgx.Tx) (err error) {
		f.sessions, err = rows(ctx, tx, statement("sessions"), nil, func(s *session) []any {
			return []any{&s.pid, &s.user, &s.app, &s.state, &s.seconds, &s.ageXacts, &s.query}
		})
		if err == nil && slices.ContainsFunc(f.sessions, func(s session) bool { return s.seconds == nil }) {
			l.unseen = append(l.unseen, Unseen{"since when the sessions of other roles are in a transaction",
				"this role may not see it; their age in transactions was used", "grant pg_read_all_stats to " + quote(f.table.role)})
		}
		return err
	})
}

func (l *looker) lookAtPrepared(ctx context.Context, f *facts) error {
	return l.catalogue(ctx, "prepared transactions", func(tx pgx.Tx) (err error) {
		f.prepared, err = rows(ctx, tx, statement("prepared"), nil, func(p *prepared) []any { return []any{&p.gid, &p.owner, &p.seconds, &p.ageXacts} })
		return err
	})
}

func (l *looker) lookAtSlots(ctx context.Context, f *facts) error {
	return l.catalogue(ctx, "replication slots", func(tx pgx.Tx) (err error) {
		f.slots, err = rows(ctx, tx, statement("slots"), nil, func(s *slot) []any { return []any{&s.name, &s.kind, &s.active, &s.age, &s.catalog, &s.wal} })
		return err
	})
}

func (l *looker) lookAtStandbys(ctx context.Context, f *facts) error {
	return l.catalogue(ctx, "standbys", func(tx pgx.Tx) (err error) {
		f.standbys, err = rows(ctx, tx, statement("standbys"), nil, func(s *standby) []any { return []any{&s.app, &s.age, &s.seen} })
		if slices.ContainsFunc(f.standbys, func(s standby) bool { return !s.seen }) {
			l.unseen = append(l.unseen, Unseen{"whether queries on standbys hold back vacuum", "this role may not see it", "grant pg_read_all_stats to " + quote(f.table.role)})
		}
		return err
	})
}

// readColumns are the columns that a message is made of, the order's first, without
// those that the table lacks.
func (f *facts) readColumns() []string {
	var names []string
	for _, name := range append(f.cfg.OrderColumns(), f.cfg.MessageColumns()...) {
		if f.column(name) != nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// rows reads all rows of a query, each into the places that into names.
func rows[T any](ctx context.Context, tx pgx.Tx, sql string, args []any, into func(*T) []any) ([]T, error) {
	found, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, func(row pgx.CollectableRow) (T, error) {
		var v T
		return v, row.Scan(into(&v)...)
	})
}
