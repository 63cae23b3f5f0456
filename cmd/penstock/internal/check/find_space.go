package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/doctor"
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
			"Vacuum makes the space free for new rows, and gives back only empty pages at the end of the file.",
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

// lateRows is the number of dead rows from which waiting for autovacuum is reported: the read of a
// batch may have to scan all of them.
const lateRows = 50_000

// findAutovacuum: whether dead rows are removed, and after how many.
func findAutovacuum(f *facts) (found []Finding) {
	if off := f.autovacuumOff(); off != nil {
		found = append(found, *off)
	}
	if f.table.partitioned() || f.stats == nil || f.settings == nil {
		return found
	}
	threshold, scale := f.option("autovacuum_vacuum_threshold"), f.option("autovacuum_vacuum_scale_factor")
	waits := threshold + scale*float64(f.stats.rows)
	if most := f.option("autovacuum_vacuum_max_threshold"); most > 0 { // PostgreSQL 18
		waits = min(waits, most)
	}
	if waits > lateRows {
		found = append(found, Finding{Severity: Warning, Code: CodeAutovacuumLate,
			Title: fmt.Sprintf("autovacuum waits for %s dead rows", number(waits)),
			Detail: fmt.Sprintf("It begins when %s rows and %g of all rows of the table are dead. An outbox makes a dead row of each message, however large the table is, "+
				"so a fixed number fits better than a share.", number(threshold), scale),
			Evidence: Evidence{Figures: []Figure{{"rows", float64(f.stats.rows), Rows}, {"dead rows", float64(f.stats.dead), Rows}, {"scale factor", scale, ""}, {"threshold", threshold, Rows}}},
			Fix: []Statement{{SQL: fmt.Sprintf("alter table %s set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = %d)", f.tableName(), lateRows/5),
				Risk: "the table is vacuumed more often, a little each time"}}})
	}
	if dead := float64(f.stats.dead); dead > 2*waits && dead > lateRows {
		find := Finding{Severity: Warning, Code: CodeVacuumBehind,
			Title:    fmt.Sprintf("%s dead rows wait for vacuum", number(dead)),
			Detail:   fmt.Sprintf("Autovacuum should have begun at %s. It is off, has too few workers or is slowed down too much (autovacuum_max_workers, autovacuum_vacuum_cost_delay), or an open snapshot keeps the rows.", number(waits)),
			Evidence: Evidence{Figures: []Figure{{"dead rows", dead, Rows}, {"live rows", float64(f.stats.live), Rows}}},
			Fix:      []Statement{f.vacuum()}}
		if ago := f.stats.vacuumedAgo; ago != nil {
			find.Evidence.Figures = append(find.Evidence.Figures, Figure{"since the last vacuum", *ago, Seconds})
		}
		found = append(found, find)
	}
	return found
}

// option is the table's own value of a setting, or else the server's, or 0 if there is none.
func (f *facts) option(name string) float64 {
	for _, from := range []map[string]string{f.table.options, f.settings} {
		if v, err := strconv.ParseFloat(from[name], 64); err == nil {
			return v
		}
	}
	return 0
}

func (f *facts) autovacuumOff() *Finding {
	find := &Finding{Severity: Warning, Code: CodeAutovacuumOff,
		Detail: "Nothing removes the dead rows that deleting and marking leave. Reads walk over them, and the table grows without end."}
	if own, set := f.table.options["autovacuum_enabled"]; set && !isTrue(own) {
		find.Title = "autovacuum is off for the table"
		find.Fix = []Statement{{SQL: "alter table " + f.tableName() + " reset (autovacuum_enabled)"}}
		return find
	}
	for _, name := range []string{"autovacuum", "track_counts"} {
		if f.settings[name] == "off" {
			find.Title = name + " is off for the whole server"
			find.Fix = []Statement{{SQL: "alter system set " + name + " = on", Risk: "for a superuser; takes effect with select pg_reload_conf()"}}
			return find
		}
	}
	return nil
}

// isTrue reads a boolean as it is written in reloptions.
func isTrue(s string) bool {
	v, err := strconv.ParseBool(s)
	return s == "on" || s == "yes" || err == nil && v
}

const heldBack = " While it is open, vacuum removes nothing that it could see, in any table of the database. Penstock's own segments are truncated all the same, unless it has locked them."

// findHolders: transactions, slots and standbys that hold back vacuum.
func findHolders(f *facts) (found []Finding) {
	reported := map[int32]bool{}
	waiting := map[int32][]int32{} // the sessions that wait, by the one that they wait for
	for i := range f.sessions {
		s := &f.sessions[i]
		blockers := f.blockers(s)
		reported[s.pid] = len(blockers) == 0 && f.isOld(s)
		for _, pid := range blockers {
			waiting[pid] = append(waiting[pid], s.pid)
		}
	}
	for i := range f.sessions {
		s := &f.sessions[i]
		if !f.isOld(s) {
			continue
		}
		blockers := f.blockers(s)
		if len(blockers) > 0 && !slices.ContainsFunc(blockers, func(pid int32) bool { return !reported[pid] }) {
			continue // the findings about those that it waits for have it
		}
		doing := "is in a transaction"
		advice := "Find out what it does. A report belongs on a standby; a dump does not, because a standby ends it or it misses rows."
		if s.state == "idle in transaction" || s.state == "idle in transaction (aborted)" {
			doing = "is idle in a transaction"
			advice = "It has begun a transaction and does nothing: idle_in_transaction_session_timeout ends such sessions."
		}
		fix := []Statement{endSession(s.pid)}
		if len(blockers) > 0 {
			doing, fix = "waits for a lock, in a transaction", nil
			advice = "It continues once that lock is released."
			for _, pid := range blockers {
				fix = append(fix, endSession(pid))
			}
		}
		since := fmt.Sprintf("for %s transactions", number(float64(s.ageXacts)))
		figures := []Figure{{"transactions begun since", float64(s.ageXacts), ""}}
		if s.seconds != nil {
			since = "for " + span(*s.seconds)
			figures = append(figures, Figure{"age", *s.seconds, Seconds})
		}
		if s.query != nil {
			figures = append(figures, Figure{"since its last query began", *s.query, Seconds})
		}
		title := fmt.Sprintf("session %d of %s %s %s", s.pid, who(s.user, s.app), doing, since)
		if len(blockers) > 0 {
			title += ": " + named(blockers) + " has it"
		}
		if behind := waiting[s.pid]; len(behind) > 0 {
			title += fmt.Sprintf("; waiting for a lock of it: %s", named(behind))
		}
		found = append(found, Finding{Severity: Warning, Code: CodeOldSnapshot,
			Title:    title,
			Detail:   advice + heldBack,
			Evidence: Evidence{Figures: figures},
			Fix:      fix})
	}
	for _, p := range f.prepared {
		if p.ageXacts < f.opts.OldTransactions && p.seconds < f.opts.OldSnapshot.Seconds() {
			continue
		}
		found = append(found, Finding{Severity: Warning, Code: CodePrepared,
			Title:    fmt.Sprintf("the prepared transaction %s of %s waits for %s", literal(p.gid), quote(p.owner), span(p.seconds)),
			Detail:   "It stays until its transaction manager commits it or rolls it back, even if the server restarts." + heldBack,
			Evidence: Evidence{Figures: []Figure{{"age", p.seconds, Seconds}, {"transactions begun since", float64(p.ageXacts), ""}}},
			Fix: []Statement{{SQL: "rollback prepared " + literal(p.gid),
				Risk: "its work is lost: first ask the transaction manager for its decision", By: doctor.MayEndPrepared}}})
	}
	return append(append(found, f.slotFindings()...), f.standbyFindings()...)
}

func (f *facts) isOld(s *session) bool {
	return s.ageXacts >= f.opts.OldTransactions || s.seconds != nil && *s.seconds >= f.opts.OldSnapshot.Seconds()
}

// blockers are the sessions that a session waits for, directly or behind others, and that wait for none themselves. 0 is a prepared transaction.
func (f *facts) blockers(s *session) (first []int32) {
	seen := map[int32]bool{s.pid: true}
	for open := slices.Clone(s.waitsFor); len(open) > 0; open = open[1:] {
		pid := open[0]
		if seen[pid] {
			continue
		}
		seen[pid] = true
		if i := slices.IndexFunc(f.sessions, func(other session) bool { return other.pid == pid }); i >= 0 && len(f.sessions[i].waitsFor) > 0 {
			open = append(open, f.sessions[i].waitsFor...)
		} else {
			first = append(first, pid)
		}
	}
	return first
}

// named lists sessions, the first of many.
func named(pids []int32) string {
	const most = 5
	var all []string
	for _, pid := range pids[:min(most, len(pids))] {
		if pid == 0 {
			all = append(all, "a prepared transaction")
		} else {
			all = append(all, fmt.Sprintf("session %d", pid))
		}
	}
	if more := len(pids) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}

// endSession ends a session, and for 0 shows the prepared transactions.
func endSession(pid int32) Statement {
	if pid == 0 {
		return Statement{SQL: "select gid, owner, prepared from pg_prepared_xacts where database = current_database()", Risk: "one of these has the lock; its transaction manager ends it"}
	}
	return Statement{SQL: fmt.Sprintf("select pg_terminate_backend(%d)", pid), Risk: "ends that session and rolls back its transaction", By: doctor.MayEndSession}
}

// muchWAL is how much an unused slot may retain before it is a warning.
const muchWAL = 1 << 30

func (f *facts) slotFindings() (found []Finding) {
	for _, s := range f.slots {
		holds := s.age != nil && (!s.active || *s.age >= f.opts.OldTransactions)
		if s.active && !holds {
			continue
		}
		find := Finding{Severity: Note, Code: CodeReplicationSlot, Title: fmt.Sprintf("no process reads the replication slot %s", quote(s.name)),
			Detail: "It retains WAL until its consumer comes back, if need be until the disk is full; max_slot_wal_keep_size bounds that."}
		if s.active {
			find.Title = fmt.Sprintf("the replication slot %s is far behind", quote(s.name))
			find.Detail = "Its standby has a query or a transaction that needs old rows."
		}
		if holds {
			find.Severity = Warning
			find.Detail += heldBack
			find.Evidence.Figures = append(find.Evidence.Figures, Figure{"transactions begun since", float64(*s.age), ""})
		}
		if s.wal != nil {
			find.Evidence.Figures = append(find.Evidence.Figures, Figure{"WAL retained", *s.wal, Bytes})
			if *s.wal >= muchWAL {
				find.Severity = Warning
			}
		}
		if s.catalog != nil && *s.catalog >= f.opts.OldTransactions {
			find.Severity = Warning
			find.Detail += " It also keeps dead rows of the system's catalogue."
			find.Evidence.Figures = append(find.Evidence.Figures, Figure{"transactions begun since its catalogue", float64(*s.catalog), ""})
		}
		if !s.active {
			find.Fix = []Statement{{SQL: "select pg_drop_replication_slot(" + literal(s.name) + ")", Risk: "its consumer, if there is one left, has to begin anew"}}
		}
		found = append(found, find)
	}
	return found
}

func (f *facts) standbyFindings() (found []Finding) {
	for _, s := range f.standbys {
		if s.age == nil || *s.age < f.opts.OldTransactions {
			continue
		}
		found = append(found, Finding{Severity: Warning, Code: CodeStandby,
			Title: fmt.Sprintf("a query on the standby %s holds back vacuum for %s transactions", quote(s.app), number(float64(*s.age))),
			Detail: "The standby reports its oldest query (hot_standby_feedback)." + heldBack +
				" End that query there, or let the standby cancel such queries: hot_standby_feedback = off with max_standby_streaming_delay.",
			Evidence: Evidence{Figures: []Figure{{"transactions begun since", float64(*s.age), ""}}}})
	}
	return found
}

func who(user, app string) string {
	if user == "" {
		user = "another role"
	} else {
		user = quote(user)
	}
	if app != "" {
		return fmt.Sprintf("%s (%q)", user, app)
	}
	return user
}

// span writes seconds for people.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
