package portable

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/schema"
)

var _ doctor.Examiner = (*Store)(nil)

// Examine implements doctor.Examiner: the engine, and whether it has the behaviour that this profile needs.
func (s *Store) Examine(ctx context.Context, _ doctor.Options) (doctor.Examined, error) {
	e := &examination{store: s, Examined: doctor.Examined{Free: -1}}
	if err := s.detect(ctx); err != nil {
		return e.Examined, err
	}
	one, err := s.pool.Acquire(ctx)
	if err != nil {
		return e.Examined, s.explain(err)
	}
	defer one.Release()
	if err := e.server(ctx, one.Conn()); err != nil {
		return e.Examined, s.explain(err)
	}
	e.isolation(ctx, one.Conn())
	other, err := s.pool.Acquire(ctx)
	if err != nil {
		return e.Examined, s.explain(err)
	}
	defer other.Release()
	e.listen(ctx, other.Conn())
	if _, err = s.CheckSchema(ctx); err != nil {
		if schema.Is(err) {
			e.Findings = append(e.Findings, doctor.BadSchema(err))
			return e.Examined, nil
		}
		return e.Examined, err
	}
	e.Add(doctor.CheckSchema, doctor.OK, fmt.Sprintf("the tables have version %d", version), "", "")
	e.locks(ctx, one.Conn(), other.Conn())
	return e.Examined, nil
}

type examination struct {
	doctor.Examined
	store *Store
}

// notSeen reports a probe that was not possible.
func (e *examination) notSeen(what string, err error) {
	f := doctor.Finding{Check: doctor.CheckNotLookedAt, Severity: doctor.Warning, About: what, Found: err.Error()}
	if pgerror.State(err) == "42501" {
		f.Severity, f.Next = doctor.Unknown, "the owner of the tables can grant the missing rights"
	}
	e.Findings = append(e.Findings, f)
}

// server measures a round trip and the clock, whose difference is part of the margin within which late commits keep their order.
func (e *examination) server(ctx context.Context, conn *pgx.Conn) error {
	var version string
	var at time.Time
	trip := time.Hour
	for range 3 { // the fastest says most
		sent := time.Now()
		if err := conn.QueryRow(ctx, "select version(), clock_timestamp()", pgx.QueryExecModeSimpleProtocol).Scan(&version, &at); err != nil {
			return err
		}
		if took := time.Since(sent); took < trip {
			trip, e.Ahead = took, at.Sub(sent.Add(took/2))
		}
	}
	engine := e.store.dialect().engine
	e.Add(doctor.CheckConnection, doctor.OK, fmt.Sprintf("%s answers in %v", engine, trip.Round(10*time.Microsecond)), "", "", doctor.Figure{Name: "round trip", Value: trip.Seconds(), Unit: "s"})
	e.Add(doctor.CheckServer, doctor.OK, version+", in the dialect of "+string(engine), "", "")
	margin, off := e.store.opts.Margin, e.Ahead.Abs()
	figures := []doctor.Figure{{Name: "the server is ahead by", Value: e.Ahead.Seconds(), Unit: "s"}, {Name: "margin", Value: margin.Seconds(), Unit: "s"}}
	if off > margin/2+trip {
		e.Add(doctor.CheckClock, doctor.Warning, fmt.Sprintf("the clock of this server and the one here differ by %v, and the margin for late commits is %v", off.Round(time.Millisecond), margin),
			"places of messages are times: of servers whose clocks differ by more than the margin, a key's messages may be shown in another order", "have all machines follow NTP", figures...)
	} else {
		e.Add(doctor.CheckClock, doctor.OK, fmt.Sprintf("the clock of this server and the one here differ by no more than %v, of a margin of %v; others of a cluster were not asked", (off+trip).Round(time.Millisecond), margin), "", "", figures...)
	}
	return nil
}

// isolation is the isolation that transactions have, which on YugabyteDB is not always the one that they name.
func (e *examination) isolation(ctx context.Context, conn *pgx.Conn) {
	var says, really string
	err := conn.QueryRow(ctx, "select current_setting('transaction_isolation'), coalesce(current_setting('yb_effective_transaction_isolation_level', true), '')",
		pgx.QueryExecModeSimpleProtocol).Scan(&says, &really)
	if err != nil { // an engine without the second argument
		err = conn.QueryRow(ctx, "select current_setting('transaction_isolation')", pgx.QueryExecModeSimpleProtocol).Scan(&says)
	}
	if err != nil {
		e.notSeen("isolation", err)
		return
	}
	if really == "" {
		really = says
	}
	const why = "transactions that meet are run again rather than wait for each other, which penstock_transaction_retries_total counts; inboxes that keep order refuse REPEATABLE READ"
	switch {
	case really == "read committed", really == "serializable" && e.store.dialect().engine == pg.Cockroach: // its usual one
		e.Add(doctor.CheckIsolation, doctor.OK, "transactions are "+really, "", "")
	case says == "read committed":
		e.Add(doctor.CheckIsolation, doctor.Warning, "transactions say that they are read committed, and are "+really, why, "start the servers with yb_enable_read_committed_isolation=true (https://docs.yugabyte.com/stable/architecture/transactions/read-committed/)")
	default:
		e.Add(doctor.CheckIsolation, doctor.Warning, "transactions are "+really, why, "as its owner: alter role … set default_transaction_isolation = 'read committed'")
	}
}

// probePatience is how long a probe waits for an answer that should come at once.
const probePatience = 2 * time.Second

// listen tries whether a notification comes back. Nothing here needs it; applications that wait for one do.
func (e *examination) listen(ctx context.Context, conn *pgx.Conn) {
	const channel = "penstock_doctor"
	var err error
	for _, verb := range []string{"listen", "notify"} {
		if err == nil {
			_, err = conn.Exec(ctx, verb+" "+channel, pgx.QueryExecModeSimpleProtocol)
		}
	}
	came := false
	if err == nil {
		short, cancel := context.WithTimeout(ctx, probePatience)
		_, wait := conn.WaitForNotification(short)
		cancel()
		came = wait == nil
		if came {
			_, _ = conn.Exec(ctx, "unlisten "+channel, pgx.QueryExecModeSimpleProtocol)
		}
	}
	asked := "Penstock asks anew in this profile, so a message waits for the relay's poll_max at most"
	switch {
	case came:
		e.Add(doctor.CheckListen, doctor.OK, "notifications come: LISTEN and NOTIFY work; "+asked, "", "")
	case err != nil:
		e.Add(doctor.CheckListen, doctor.OK, "there is no LISTEN ("+strings.TrimPrefix(err.Error(), "ERROR: ")+"); "+asked, "", "")
	default:
		e.Add(doctor.CheckListen, doctor.OK, "no notification comes, though LISTEN is taken: a pooler is in between, or the engine does nothing for it; "+asked, "", "")
	}
}

// locks tries the locks of claims, settling and operators: a statement that meets a locked row waits for it, or skips it, as it says.
func (e *examination) locks(ctx context.Context, one, other *pgx.Conn) {
	tx, err := one.Begin(ctx)
	if err != nil {
		e.notSeen("row locks", err)
		return
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	row := e.store.sql("select version from {schema}.version where version = $1 for update", "")
	if _, err := tx.Exec(ctx, row, pgx.QueryExecModeSimpleProtocol, version); err != nil {
		e.notSeen("row locks", err)
		return
	}
	try := func(how string) (rows int64, took time.Duration, err error) {
		short, cancel := context.WithTimeout(ctx, probePatience)
		defer cancel()
		began := time.Now()
		err = pgx.BeginFunc(short, other, func(tx pgx.Tx) error {
			tag, err := tx.Exec(short, row+how, pgx.QueryExecModeSimpleProtocol, version)
			rows = tag.RowsAffected()
			return err
		})
		return rows, time.Since(began), err
	}
	switch rows, _, err := try(" nowait"); {
	case err == nil && rows > 0:
		e.Add(doctor.CheckLocks, doctor.Critical, "a row that another transaction has locked could be locked once more", "two relays could settle the same messages, and two workers run the same job", "use another server: row locks do not hold on this one")
		return
	case err != nil && pgerror.State(err) != "55P03":
		e.notSeen("row locks", err)
		return
	}
	rows, took, err := try(" skip locked")
	figure := doctor.Figure{Name: "SKIP LOCKED took", Value: took.Seconds(), Unit: "s"}
	switch {
	case err != nil || rows > 0:
		e.Add(doctor.CheckLocks, doctor.OK, "row locks hold; SKIP LOCKED does not pass them over, and this profile does without it", "", "", figure)
	default:
		e.Add(doctor.CheckLocks, doctor.OK, "row locks hold, and SKIP LOCKED passes them over", "", "", figure)
	}
}

// Running implements doctor.Examiner.
func (s *Store) Running(ctx context.Context, queue string, most int) ([]doctor.Running, error) {
	if err := admin.ValidateLimit(most); err != nil {
		return nil, err
	}
	rows, _ := s.pool.Query(ctx, s.sql("running", ""), queue, most)
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r doctor.Running, err error) {
		var ts, until, begun, now time.Time
		err = row.Scan(&r.Queue, &r.ID, &r.Lease, &r.Worker, &r.Attempt, &ts, &until, &begun, &now)
		r.Age, r.Expired, r.Held = now.Sub(ts), now.Sub(until), now.Sub(begun)
		return r, err
	})
	return all, s.explain(err)
}
