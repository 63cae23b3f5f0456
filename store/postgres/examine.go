package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/shell"
)

var _ doctor.Examiner = (*Store)(nil)

// Examine implements doctor.Examiner: the server, its settings, the role, a pooler in between, and the holders of segments.
func (s *Store) Examine(ctx context.Context, o doctor.Options) (doctor.Examined, error) {
	o.SetDefaults()
	e := &examination{store: s, o: o, Examined: doctor.Examined{Free: -1}}
	one, err := s.connect(ctx)
	if err != nil {
		return e.Examined, err
	}
	defer closeConn(one)
	if err := e.server(ctx, one); sqlState(err) == "42501" {
		e.Add(doctor.CheckPermissions, doctor.Critical, err.Error(), "this role may do nothing here", "as the owner of the schema, grant the right that the role needs: to publish, penstock outbox grant OUTBOX ROLE --publish; to relay, penstock outbox grant ROLE --relay; to work, penstock queue grant QUEUE ROLE --work")
		return e.Examined, nil
	} else if err != nil {
		return e.Examined, s.explain(err)
	}
	e.pooler(ctx, one)
	e.schema(ctx)
	if !e.migrated {
		return e.Examined, nil
	}
	e.permissions(ctx, one)
	e.advisoryLocks(ctx, one)
	e.segments(ctx)
	e.disk(ctx, one)
	return e.Examined, nil
}

type examination struct {
	doctor.Examined
	store         *Store
	o             doctor.Options
	migrated      bool
	role          string
	owner, relays bool // the role owns the schema, or has the rights that grant_relay gives
	identified    bool // it may execute pg_control_system
}

// notSeen reports something that the server refused to show.
func (e *examination) notSeen(what string, err error) {
	f := doctor.Finding{Check: doctor.CheckNotLookedAt, Severity: doctor.Unknown, About: what, Found: err.Error(), Next: e.store.grantHint(err)}
	if hint, ok := errors.AsType[*penstock.HintError](err); ok {
		f.Found, f.Next = hint.Err.Error(), hint.Hint
	}
	if sqlState(err) == "42501" {
		f.Why = doctor.NotItsWork
	}
	if f.Next == "" && sqlState(err) != "42501" {
		f.Severity = doctor.Warning
	}
	e.Findings = append(e.Findings, f)
}

// clockTolerance is by how much clocks may differ before it is a finding: names and times in logs are compared by people.
const clockTolerance = 2 * time.Second

// settings that matter, in the order in which they are judged.
var settingsThatMatter = []string{"fsync", "full_page_writes", "synchronous_commit", "autovacuum", "track_counts", "max_connections", "superuser_reserved_connections",
	"statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout", "default_transaction_read_only"}

func (e *examination) server(ctx context.Context, conn *pgx.Conn) error {
	var (
		at       time.Time
		version  string
		standby  bool
		pairs    []string
		sessions int64
		trip     = time.Hour
	)
	for range 3 { // the fastest says most
		sent := time.Now()
		if err := conn.QueryRow(ctx, statement("server", e.store.schema, ""), pgx.QueryExecModeExec, settingsThatMatter).
			Scan(&at, &version, &standby, &e.role, &pairs, &sessions, &e.owner, &e.Owner, &e.relays, &e.identified); err != nil {
			return err
		}
		if took := time.Since(sent); took < trip {
			trip, e.Ahead = took, at.Sub(sent.Add(took/2))
		}
	}
	e.Add(doctor.CheckConnection, doctor.OK, fmt.Sprintf("PostgreSQL answers in %v", trip.Round(10*time.Microsecond)), "", "", doctor.Figure{Name: "round trip", Value: trip.Seconds(), Unit: "s"})
	clock := doctor.Figure{Name: "the server is ahead by", Value: e.Ahead.Seconds(), Unit: "s"}
	if off := e.Ahead.Abs(); off > clockTolerance+trip {
		e.Add(doctor.CheckClock, doctor.Warning, fmt.Sprintf("the clock of the server and the one here differ by %v", off.Round(time.Second)),
			"leases, delays and ages go by the server's clock: times in logs and messages do not fit to them", "have both machines follow NTP", clock)
	} else {
		e.Add(doctor.CheckClock, doctor.OK, fmt.Sprintf("the clock of the server and the one here differ by no more than %v", (off+trip).Round(time.Millisecond)), "", "", clock)
	}
	set := map[string]string{}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		set[name] = value
	}
	switch {
	case standby:
		e.Add(doctor.CheckServer, doctor.Critical, "PostgreSQL "+version+" is a standby", "nothing can be published, enqueued or settled there", "connect to the primary: with several hosts in the URL, or target_session_attrs=read-write, it is picked")
	case set["default_transaction_read_only"] == "on":
		e.Add(doctor.CheckServer, doctor.Critical, "transactions are read-only by default (default_transaction_read_only)", "nothing can be published, enqueued or settled", "alter role "+pgx.Identifier{e.role}.Sanitize()+" set default_transaction_read_only = off, or remove the setting where it is made")
	default:
		e.Add(doctor.CheckServer, doctor.OK, "PostgreSQL "+version+", a primary", "", "")
	}
	e.settings(set, sessions)
	return nil
}

// advisoryLocks finds sessions that have locks of ours for long: every role that may connect can
// take them.
func (e *examination) advisoryLocks(ctx context.Context, conn *pgx.Conn) {
	rows, err := conn.Query(ctx, statement("advisory_locks", e.store.schema, ""), pgx.QueryExecModeExec, e.o.Old)
	if err != nil {
		e.notSeen("advisory locks", err)
		return
	}
	var (
		pid, locks, waiting int64
		role, application   string
		seconds             *float64 // null: the role is not shown it
		unseen              bool
	)
	_, err = pgx.ForEachRow(rows, []any{&pid, &role, &application, &seconds, &locks, &waiting}, func() error {
		if seconds == nil {
			unseen = true
			return nil
		}
		held := time.Duration(*seconds * float64(time.Second))
		e.Add(doctor.CheckAdvisory, doctor.Warning, fmt.Sprintf("session %d of role %s (%q) has had %d of Penstock's advisory locks for %v, and %d wait for them", pid, role, application, locks, held.Round(time.Second), waiting),
			"a relay that takes its lease, migrate, maintenance and jobs of the same keys wait for it; any role that may connect to the database can take them",
			fmt.Sprintf("find out what it does; select pg_terminate_backend(%d) ends it, "+doctor.MayEndSession+"; revoke connect on the database keeps a role out", pid), doctor.Figure{Name: "held", Value: *seconds, Unit: "s"})
		return nil
	})
	if err == nil && unseen {
		err = e.store.seesSessions(ctx)
	}
	if err != nil {
		e.notSeen("advisory locks", err)
	}
}

// permissions reports the rights of the role. The configuration may describe relays and workers with different roles: one that has some of
// the rights lacks the others on purpose, perhaps.
func (e *examination) permissions(ctx context.Context, conn *pgx.Conn) {
	queues, err := list(ctx, conn, pgx.RowTo[string], "select substr(p.proname, 2, length(p.proname) - 7) from pg_proc p"+
		" where p.pronamespace = (select oid from pg_namespace where nspname = $1) and p.proname ~ '^_.*[.]claim$' and has_function_privilege(p.oid, 'execute') order by 1 limit 1000", pgx.QueryExecModeExec, e.store.schema)
	if err != nil {
		e.notSeen("the queues that the role may work on", err)
	}
	var lacks, grants, may []string
	if e.o.Relays && !e.relays {
		lacks, grants = append(lacks, "run the relay"), append(grants, "penstock outbox grant "+shell.Word(e.role)+" --relay")
	}
	for _, queue := range e.o.Works {
		if !slices.Contains(queues, queue) {
			lacks, grants = append(lacks, "work on queue "+queue), append(grants, "penstock queue grant "+shell.Word(queue)+" "+shell.Word(e.role)+" --work")
		}
	}
	if e.relays && e.identified {
		may = append(may, "run the relay")
	}
	if n := len(queues); n > 0 {
		const most = 3
		text := "work on " + strings.Join(queues[:min(n, most)], ", ")
		if n > most {
			text += fmt.Sprintf(" and %d other queues", n-most)
		}
		may = append(may, text)
	}
	switch found := "role " + e.role + " may not " + strings.Join(lacks, ", nor ") + ", and the configuration has it do so"; {
	case e.owner:
		e.Add(doctor.CheckPermissions, doctor.OK, "role "+e.role+" owns the schema", "", "")
	case len(lacks) > 0 && len(may) > 0:
		e.Add(doctor.CheckPermissions, doctor.Warning, found+"; it may "+strings.Join(may, " and "),
			"a process that does all of the configuration with this role fails",
			"nothing if another role is for that. If this one is, as the owner of the schema: "+strings.Join(grants, "; "))
	case len(lacks) > 0:
		e.Add(doctor.CheckPermissions, doctor.Critical, found, "it is refused there", "as the owner of the schema: "+strings.Join(grants, "; "))
	case e.o.Relays && !e.identified:
		e.Add(doctor.CheckPermissions, doctor.Critical, "role "+e.role+" may not execute pg_control_system(), and the configuration has it run the relay", "it cannot take a lease or move a cursor",
			"as a superuser: grant execute on function pg_control_system() to "+pgx.Identifier{e.role}.Sanitize())
	case len(may) > 0:
		e.Add(doctor.CheckPermissions, doctor.OK, "role "+e.role+" may "+strings.Join(may, " and "), "", "")
	default:
		e.Add(doctor.CheckPermissions, doctor.OK, "role "+e.role+" neither owns the schema nor may run the relay: checks that it may not see are left out", "", "")
	}
}

// settings judges those with consequences here. wal_level, for one, has none.
func (e *examination) settings(set map[string]string, sessions int64) {
	before := len(e.Findings)
	for _, c := range []struct {
		name     string
		severity doctor.Severity
		why      string
	}{
		{"fsync", doctor.Critical, "a crash of the server may lose or damage committed data, delivered messages among it"},
		{"full_page_writes", doctor.Warning, "a crash of the machine may damage tables"},
		{"synchronous_commit", doctor.Warning, "a published message may be delivered and then be lost in a crash of the server; relays turn it on for their own cursors"},
		{"autovacuum", doctor.Warning, "rings need none, but the catalogue, dead letters and the tables of the application do, and transaction ids run out"},
		{"track_counts", doctor.Warning, "autovacuum does not run without it"},
	} {
		if set[c.name] == "off" {
			e.Add(doctor.CheckSettings, c.severity, c.name+" is off", c.why, "alter system set "+c.name+" = on; select pg_reload_conf(); or reset it where the role or the database has it")
		}
	}
	if got, want := number64(set["max_connections"])-number64(set["superuser_reserved_connections"])-sessions, max(number64(set["max_connections"])/20, 4); got < want {
		e.Add(doctor.CheckSettings, doctor.Warning, fmt.Sprintf("%d of %s connections are in use", sessions, set["max_connections"]), "a relay that has to connect anew is refused, and waits",
			"end sessions that are not needed, put a pooler before producers and workers, or raise max_connections", doctor.Figure{Name: "free connections", Value: float64(got)})
	}
	for _, c := range []struct {
		name string
		less int64 // ms
		why  string
	}{
		{"statement_timeout", 5000, "migrations, maintenance of large queues and status may be cut short; relays lift it for themselves"},
		{"idle_in_transaction_session_timeout", 5000, "a handler that works inside the job's transaction is cut off when it takes longer"},
		{"transaction_timeout", 5000, "handlers that work inside the job's transaction, and migrations, are cut off when they take longer"},
	} {
		if ms := number64(set[c.name]); ms > 0 && ms < c.less {
			e.Add(doctor.CheckSettings, doctor.Warning, fmt.Sprintf("%s is %d ms", c.name, ms), c.why, "give Penstock's role a longer one: alter role … set "+c.name+" = …", doctor.Figure{Name: c.name, Value: float64(ms) / 1000, Unit: "s"})
		}
	}
	if len(e.Findings) == before {
		e.Add(doctor.CheckSettings, doctor.OK, fmt.Sprintf("no setting stands in the way; %d of %s connections are in use", sessions, set["max_connections"]), "", "")
	}
}

func number64(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64) // a missing value is 0
	return n
}

// pooler looks whether sessions keep their server process.
func (e *examination) pooler(ctx context.Context, one *pgx.Conn) {
	two, err := e.store.connect(ctx)
	if err == nil {
		defer closeConn(two)
		var first backend
		if first, _, err = ownBackends(ctx, one, two); err == nil {
			between := "no pooler is in between"
			if !first.direct {
				between = "a pooler is in between, and sessions keep their server process"
			}
			e.Add(doctor.CheckPooler, doctor.OK, between, "", "")
			return
		}
	}
	severity := doctor.Warning
	if e.o.Relays {
		severity = doctor.Critical
	}
	if err != errPooled {
		e.notSeen("whether a pooler is in between", err)
		return
	}
	e.Add(doctor.CheckPooler, severity, "a pooler in between gives a connection another server process for every transaction", "a relay needs two sessions that last, and is refused there",
		"give relays a URL that leads to PostgreSQL itself or to a pool in session mode; a PgBouncer before 1.21, or whose max_prepared_statements is 0, also needs ?default_query_exec_mode=exec in the URLs of the others")
}

func (e *examination) schema(ctx context.Context) {
	differences, err := e.store.CheckSchema(ctx)
	switch {
	case sqlState(err) != "":
		e.notSeen("the functions of the schema", err)
	case err != nil: // of another version, or not there
		e.Findings = append(e.Findings, doctor.BadSchema(err))
		return
	case len(differences) > 0:
		const most = 5
		text := strings.Join(differences[:min(most, len(differences))], "; ")
		if more := len(differences) - most; more > 0 {
			text += fmt.Sprintf("; and %d more", more)
		}
		e.Add(doctor.CheckSchema, doctor.Warning, text, "a schema that differs from this program is not tested, and without an index calls are slow", "penstock migrate makes it anew; penstock migrate --check lists all", doctor.Figure{Name: "differences", Value: float64(len(differences))})
	default:
		e.Add(doctor.CheckSchema, doctor.OK, fmt.Sprintf("version %d, with the functions of this program", newestVersion()), "", "")
	}
	e.migrated = true
}

// HeldSegments lists sealed segments of outboxes that still have rows, by outbox and slot, and the holders of each.
func (s *Store) HeldSegments(ctx context.Context) ([]doctor.HeldSegment, error) {
	return list(ctx, s.pool, func(row pgx.CollectableRow) (h doctor.HeldSegment, err error) {
		var seconds float64
		err = row.Scan(&h.Outbox, &h.Slot, &h.Bytes, &h.Of, &h.Subscriptions, &h.Unread, &h.Retained, &h.Locked, &h.Prepared, &seconds)
		h.LockedFor = time.Duration(seconds) * time.Second
		return h, err
	}, statement("segment_holders", s.schema, ""), pgx.QueryExecModeExec)
}

// segments returns which subscriptions, or who else, keep segments from being given back.
func (e *examination) segments(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all, err := e.store.HeldSegments(ctx)
	if err != nil {
		e.notSeen("the holders of segments", err)
		return
	}
	before := len(e.Findings)
	if slices.ContainsFunc(all, func(h doctor.HeldSegment) bool { return h.Locked != "" && h.LockedFor == 0 }) {
		if err := e.store.seesSessions(ctx); err != nil {
			e.notSeen("for how long sessions of other roles keep segments", err)
		}
	}
	for i := 0; i < len(all); {
		of := all[i:]
		if end := slices.IndexFunc(of, func(h doctor.HeldSegment) bool { return h.Outbox != of[0].Outbox }); end > 0 {
			of = of[:end]
		}
		i += len(of)
		f := doctor.Finding{Check: doctor.CheckSegments, Severity: doctor.Warning, About: of[0].Outbox}
		var subscriptions, sessions, next []string
		var bytes int64
		n := 0
		for _, h := range of {
			switch {
			case (h.Unread || len(h.Subscriptions) > 0) && e.olderThan(ctx, &h, e.o.Old):
				subscriptions = append(subscriptions, h.Subscriptions...)
			case !h.Unread && len(h.Subscriptions) == 0 && !h.Retained && h.Locked != "" && h.LockedFor >= e.o.Old:
				sessions = append(sessions, fmt.Sprintf("%s, in a transaction for %v", h.Locked, h.LockedFor))
				if h.Prepared == "" {
					next = append(next, "end a session with pg_terminate_backend, "+doctor.MayEndSession)
				} else {
					next = append(next, "rollback prepared "+h.Prepared+", or commit prepared if its transaction manager has decided so, "+doctor.MayEndPrepared)
				}
			default:
				continue
			}
			n, bytes = n+1, bytes+h.Bytes
		}
		if n == 0 {
			continue
		}
		slices.Sort(sessions)
		slices.Sort(subscriptions)
		slices.Sort(next)
		by, next := slices.Compact(sessions), slices.Compact(next)
		for _, name := range slices.Compact(subscriptions) {
			by = append(by, "subscription "+name)
		}
		because := "of " + strings.Join(by, ", ")
		switch {
		case of[0].Unread:
			because = "the outbox has no subscription yet"
			next = append(next, "start a relay, which makes one, or drop the outbox as the owner of the tables if it is not needed: penstock outbox drop "+shell.Word(f.About))
		case len(subscriptions) > 0:
			next = append(next, "start the relay of the subscription; see the relays and the backlog: penstock status "+shell.Word(f.About))
		}
		f.Found = fmt.Sprintf("%d of %d segments are sealed and cannot be given back, because %s", n, of[0].Of, because)
		f.Next = strings.Join(next, "; ")
		f.Why = "the ring continues in the others"
		if len(of) >= of[0].Of-1 {
			f.Severity, f.Why = doctor.Critical, "no other segment is free: the current one grows until the disk is full"
		}
		f.Measured = []doctor.Figure{{Name: "segments held", Value: float64(n)}, {Name: "segments", Value: float64(of[0].Of)}, {Name: "held", Value: float64(bytes), Unit: "bytes"}}
		e.Findings = append(e.Findings, f)
	}
	if len(e.Findings) == before {
		e.Add(doctor.CheckSegments, doctor.OK, "no segment of an outbox is held for long", "", "")
	}
}

// patience bounds a look that reads more than the catalogue.
const patience = 10 * time.Second

// olderThan reports whether the newest message of a segment is. It reads the segment through its outbox, which a relay's role may read.
func (e *examination) olderThan(ctx context.Context, h *doctor.HeldSegment, old time.Duration) (is bool) {
	err := e.store.pool.QueryRow(ctx, "select created_at < clock_timestamp() - $1::interval from "+e.store.table(h.Outbox)+" where slot = $2 order by seq desc limit 1", pgx.QueryExecModeExec, old, h.Slot).Scan(&is)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) { // without a row it is being given back
		e.notSeen(fmt.Sprintf("how old the messages in segment %d of outbox %s are", h.Slot, h.Outbox), err)
	}
	return is
}

// disk measures the free space, if the server is on this machine and shows where its data is.
func (e *examination) disk(ctx context.Context, conn *pgx.Conn) {
	config := conn.Config()
	ip := net.ParseIP(config.Host)
	if network, _ := pgconn.NetworkAddress(config.Host, config.Port); network != "unix" && config.Host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		e.Add(doctor.CheckDisk, doctor.Unknown, "the server is on another machine, and SQL does not show the free space of its disk", "", "alert on it there")
		return
	}
	var folder string
	if err := conn.QueryRow(ctx, "select current_setting('data_directory')", pgx.QueryExecModeExec).Scan(&folder); err != nil {
		if sqlState(err) == "42501" {
			err = penstock.WithHint(err, "a superuser can grant it: grant pg_read_all_settings to %s", pgx.Identifier{e.role}.Sanitize())
		}
		e.notSeen("the room on the disk of the server", err)
		return
	}
	var f doctor.Finding
	f, e.Free = doctor.Disk(folder)
	e.Findings = append(e.Findings, f)
}

// UnsealedBarriers implements doctor.BarrierReader. It looks at the 1,000 jobs that have waited longest.
func (s *Store) UnsealedBarriers(ctx context.Context, queue string) ([]doctor.UnsealedBarrier, error) {
	all, err := lookUp(ctx, s, pgx.RowToStructByPos[doctor.UnsealedBarrier], statement("unsealed_barriers", s.schema, ""), pgx.QueryExecModeExec, queue)
	return all, s.explain(err)
}

// Running implements doctor.Examiner.
func (s *Store) Running(ctx context.Context, queue string, most int) ([]doctor.Running, error) {
	if err := admin.ValidateLimit(most); err != nil {
		return nil, err
	}
	all, err := lookUp(ctx, s, func(row pgx.CollectableRow) (r doctor.Running, err error) {
		var age, expired, held float64
		err = row.Scan(&r.Queue, &r.ID, &r.Lease, &r.Worker, &r.Attempt, &age, &expired, &held, &r.Report)
		r.Age, r.Expired, r.Held = time.Duration(age*float64(time.Second)), time.Duration(expired*float64(time.Second)), time.Duration(held*float64(time.Second))
		return r, err
	}, statement("running", s.schema, ""), pgx.QueryExecModeExec, queue, most)
	return all, s.explain(err)
}
