package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
)

// FixOptions limit Fix.
type FixOptions struct {
	// Ask is called before each statement and returns whether to run it. If it is nil, no statement is
	// run.
	Ask func(Statement) bool
	// Progress is called a few times a second while an index is created, from
	// another goroutine; nil is not called.
	Progress func(Progress)
	// LockTimeout bounds each wait for other transactions: creating an index concurrently waits until
	// the transactions have ended that were open when it began. No reader and no writer waits
	// meanwhile. Default 1 minute.
	LockTimeout time.Duration
}

// DefaultLockTimeout is used where FixOptions has none.
const DefaultLockTimeout = time.Minute

// Progress of creating an index. Done and Total are tuples, pages of the table, or transactions to
// wait for, depending on the phase. Total is 0 if it is unknown.
type Progress struct {
	Index       Index
	Phase       string // as pg_stat_progress_create_index has it
	Done, Total int64
	// WaitsFor is the process whose transaction it waits for, or 0.
	WaitsFor int
}

// Fixed is the result of one statement.
type Fixed struct {
	Statement Statement     `json:"statement"`
	Outcome   Outcome       `json:"outcome"`
	Took      time.Duration `json:"took"`
	// Replaced: an invalid index of that name, which a failed attempt had left, was dropped first.
	Replaced bool `json:"replaced,omitempty"`
}

// Outcome of a statement that Fix could run.
type Outcome string

const (
	// Created: the index is there, and valid.
	Created Outcome = "created"
	// Exists: a valid index of that name was there already.
	Exists Outcome = "exists"
	// Declined by Ask.
	Declined Outcome = "declined"
)

// Fix creates the indexes that a report suggests, after asking for each. It runs no other
// statements. The indexes are created concurrently, which no transaction block allows. So conn
// must be in no transaction, and connect to the server directly or through a pooler in session
// mode.
//
// Fix ends at the first statement that fails. A half-built index is dropped if that is possible.
// Otherwise the error reports it, and the next Fix replaces it. When ctx ends, Fix cancels the
// statement on the server.
func Fix(ctx context.Context, conn *pgx.Conn, r Report, opts FixOptions) ([]Fixed, error) {
	if conn.PgConn().TxStatus() != 'I' {
		return nil, errors.New("creating indexes: the connection is in a transaction, where none can be created concurrently")
	}
	if opts.LockTimeout <= 0 {
		opts.LockTimeout = DefaultLockTimeout
	}
	fixer := &fixer{conn: conn, opts: opts}
	restore, err := fixer.settings(ctx)
	if err != nil {
		return nil, err
	}
	defer restore()
	var done []Fixed
	for _, find := range r.Findings {
		for _, s := range find.Fix {
			if s.Creates == nil || s.Alternative || contains(done, s) {
				continue
			}
			fixed, err := fixer.create(ctx, s)
			if err != nil {
				return done, err
			}
			done = append(done, fixed)
		}
	}
	return done, nil
}

// contains: two findings may suggest the same index.
func contains(done []Fixed, s Statement) bool {
	return slices.ContainsFunc(done, func(d Fixed) bool { return *d.Statement.Creates == *s.Creates })
}

type fixer struct {
	conn *pgx.Conn
	opts FixOptions
}

// settings bound waiting for locks and let an index take its time; restore resets them.
func (f *fixer) settings(ctx context.Context) (restore func(), err error) {
	var lock, statement string
	if err := f.conn.QueryRow(ctx, "select current_setting('lock_timeout'), current_setting('statement_timeout')").Scan(&lock, &statement); err != nil {
		return nil, fmt.Errorf("creating indexes: %w", err)
	}
	const set = "select set_config('lock_timeout', $1, false), set_config('statement_timeout', $2, false)"
	if _, err := f.conn.Exec(ctx, set, fmt.Sprint(f.opts.LockTimeout.Milliseconds()), "0"); err != nil {
		return nil, fmt.Errorf("creating indexes: %w", err)
	}
	return func() {
		ctx, cancel := aWhile(ctx)
		defer cancel()
		_, _ = f.conn.Exec(ctx, set, lock, statement) // fails with a connection that is lost, and so are its settings
	}, nil
}

// aWhile is a context for steps that are necessary although ctx may have ended.
func aWhile(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 2*DefaultLockTimeout)
}

func (f *fixer) create(ctx context.Context, s Statement) (Fixed, error) {
	fixed := Fixed{Statement: s, Outcome: Declined}
	failed := func(err error) (Fixed, error) {
		return fixed, fmt.Errorf("creating the index %s: %w", quote(s.Creates.Name), err)
	}
	state, err := f.state(ctx, *s.Creates)
	switch {
	case err != nil:
		return failed(err)
	case state == valid:
		fixed.Outcome = Exists
		return fixed, nil
	case state == building:
		return failed(penstock.WithHint(errors.New("another session is creating it"), "wait for that one, and run the check again"))
	case state == taken:
		return failed(penstock.WithHint(errors.New("there is something else of that name"), "rename it, or create the index under another name"))
	}
	if f.opts.Ask == nil || !f.opts.Ask(s) {
		return fixed, nil
	}
	if state == invalid {
		if err := f.drop(ctx, *s.Creates); err != nil {
			return failed(penstock.WithHint(fmt.Errorf("dropping the index of a failed attempt: %w", err), "drop index concurrently %s", s.Creates.quoted()))
		}
		fixed.Replaced = true
	}
	start := time.Now()
	waits, err := f.run(ctx, s)
	fixed.Took = time.Since(start)
	if err != nil {
		return failed(f.cleanUp(ctx, s, hinted(err, waits)))
	}
	fixed.Outcome = Created
	return fixed, nil
}

// hinted adds the next step to likely errors.
func hinted(err error, waitsFor int) error {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return err
	}
	switch refused.Code {
	case tableIsLocked:
		if waitsFor != 0 {
			return penstock.WithHint(err, "session %d is in a transaction that has to end first: see it in pg_stat_activity, or allow a longer lock timeout", waitsFor)
		}
		return penstock.WithHint(err, "a transaction that is open has to end first: see the oldest in pg_stat_activity, or allow a longer lock timeout")
	case noPrivilege:
		return penstock.WithHint(err, "run it as the table's owner")
	case "23505":
		return penstock.WithHint(err, "two rows have the same id: give one of them another, or map another column")
	case "54000": // program_limit_exceeded: index row size … exceeds btree version 4 maximum
		return penstock.WithHint(err, "contents are too large for the index: create it without INCLUDE")
	}
	return err
}

// cleanUpPatience limits the wait for dropping the remains of a failed attempt: a transaction that
// delayed its creation also delays its removal.
const cleanUpPatience = time.Second

// cleanUp drops the remains of a failed attempt and returns the attempt's error.
func (f *fixer) cleanUp(ctx context.Context, s Statement, err error) error {
	ctx, cancel := aWhile(ctx)
	defer cancel()
	state, looked := f.state(ctx, *s.Creates)
	if looked == nil && state == invalid {
		if _, looked = f.conn.Exec(ctx, "select set_config('lock_timeout', $1, false)", fmt.Sprint(cleanUpPatience.Milliseconds())); looked == nil {
			looked = f.drop(ctx, *s.Creates)
		}
	}
	if looked == nil {
		return err
	}
	return fmt.Errorf("%w; it may be left half made, which no query uses (%w): a second attempt replaces it, or drop index concurrently %s once nothing is in the way",
		err, looked, s.Creates.quoted())
}

// drop drops an invalid index. A cancel meant for its creation may reach it, once.
func (f *fixer) drop(ctx context.Context, x Index) error {
	sql := "drop index concurrently if exists " + x.quoted()
	_, err := f.conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == tookTooLong {
		_, err = f.conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	}
	return err
}

func (x Index) quoted() string { return pgx.Identifier{x.Schema, x.Name}.Sanitize() }

// run executes the statement, reports its progress, and cancels it on the server when ctx ends:
// closing the connection would let it continue. waitsFor is the last process that it waited for.
func (f *fixer) run(ctx context.Context, s Statement) (waitsFor int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	watch := f.watch(ctx, *s.Creates)
	over, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-over:
			return
		case <-ctx.Done():
		}
		again := time.NewTicker(time.Second) // the first may come before the statement
		defer again.Stop()
		for {
			cancel, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			_ = f.conn.PgConn().CancelRequest(cancel)
			done()
			select {
			case <-over:
				return
			case <-again.C:
			}
		}
	}()
	_, err = f.conn.Exec(context.WithoutCancel(ctx), s.SQL, pgx.QueryExecModeSimpleProtocol)
	close(over)
	<-stopped
	waitsFor = watch()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return waitsFor, err
}

// indexState is the state of the index of a name.
type indexState uint8

const (
	absent indexState = iota
	valid
	invalid
	building // by another session
	taken    // by something else
)

func (f *fixer) state(ctx context.Context, x Index) (indexState, error) {
	var isIndex, isValid, isBuilding bool
	err := f.conn.QueryRow(ctx, statement("index_state"), x.Schema, x.Name).Scan(&isIndex, &isValid, &isBuilding)
	switch {
	case isNoRow(err):
		return absent, nil
	case err != nil:
		return absent, err
	case !isIndex:
		return taken, nil
	case isBuilding:
		return building, nil
	case isValid:
		return valid, nil
	}
	return invalid, nil
}

// watchEvery is the pause between two queries about an index that is being created.
const watchEvery = 200 * time.Millisecond

// watch reports progress from a separate connection until the returned function is called. That
// function returns the process for which the index waited last. Without a second connection there
// is no progress.
func (f *fixer) watch(ctx context.Context, x Index) (stop func() (waitsFor int)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	last := make(chan int, 1)
	go func() {
		waitsFor := 0
		defer func() { last <- waitsFor }()
		conn, err := pgx.ConnectConfig(ctx, f.conn.Config())
		if err != nil {
			return
		}
		defer conn.Close(context.WithoutCancel(ctx))
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			p := Progress{Index: x}
			err := conn.QueryRow(ctx, statement("progress"), int64(f.conn.PgConn().PID())).Scan(&p.Phase, &p.Done, &p.Total, &p.WaitsFor)
			switch {
			case err == nil:
				waitsFor = p.WaitsFor
				if f.opts.Progress != nil {
					f.opts.Progress(p)
				}
			case !isNoRow(err):
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() int {
		cancel()
		return <-last
	}
}
