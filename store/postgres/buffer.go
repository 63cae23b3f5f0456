package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/buffer"
)

// Buffered begins transactions that buffer messages and jobs. Use it in place of the pool or connection, also in pgx.BeginFunc.
type Buffered struct {
	db   Beginner
	opts penstock.BufferOptions
}

// Beginner has the method that Buffered needs: it is a *pgxpool.Pool, *pgxpool.Conn or *pgx.Conn.
type Beginner interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// NewBuffered returns a Buffered that begins transactions of db.
func NewBuffered(db Beginner, opts penstock.BufferOptions) *Buffered { return &Buffered{db, opts} }

// Begin begins a *BufferedTx.
func (b *Buffered) Begin(ctx context.Context) (pgx.Tx, error) { return b.BeginTx(ctx, pgx.TxOptions{}) }

// BeginTx begins a *BufferedTx.
func (b *Buffered) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	var (
		conn *pgx.Conn
		free = func() {}
	)
	switch db := b.db.(type) {
	case *pgx.Conn:
		conn = db
	case *pgxpool.Conn:
		conn = db.Conn()
	case *pgxpool.Pool:
		c, err := db.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		conn, free = c.Conn(), c.Release
	default:
		tx, err := db.BeginTx(ctx, opts)
		if err != nil {
			return nil, err
		}
		return Buffer(tx, b.opts), nil
	}
	tx, err := conn.BeginTx(ctx, opts)
	if err != nil {
		free()
		return nil, err
	}
	made := Buffer(tx, b.opts)
	made.own, made.shared, made.free = opts.CommitQuery == "", false, free
	return made, nil
}

// BufferedTx is a transaction in which Outbox.PublishTx and its own Enqueue only buffer messages and jobs. It writes them in
// statements of many rows: before any other statement of the transaction, and at the latest in the round trip of COMMIT. So its reads,
// locks and guarantees are the same as without a buffer (docs/guides/buffering.md). It does everything else like the
// transaction that it wraps. If a write fails after the call that asked for it, the next call returns the error, and so do all
// later ones except Rollback.
//
// Like any pgx.Tx, one goroutine at a time may use it.
type BufferedTx struct {
	*bufferedSession
	depth  int // 0 is the transaction, above it are savepoints
	number int // of the savepoint
	closed bool
}

var _ pgx.Tx = (*BufferedTx)(nil)

// bufferedSession is shared by a transaction and its savepoints.
type bufferedSession struct {
	tx     pgx.Tx
	free   func() // gives the connection back
	own    bool   // no other code ends the transaction
	shared bool   // the program may use the connection itself, so nothing runs in the background
	across bool
	held   *buffer.Buffer[*Outbox, *Queue]

	ended      bool // by COMMIT or ROLLBACK: another caller may have the connection
	savepoints int  // how many were begun

	failed error
	depth  int // of the failure
	behind *backgroundFlush
}

type backgroundFlush struct {
	of     *buffer.Flush[*Outbox, *Queue]
	cancel context.CancelFunc
	ended  chan struct{}
}

// Buffer wraps an open transaction. Call Commit on the returned wrapper: if tx itself is committed, messages and jobs that are still
// buffered are lost.
func Buffer(tx pgx.Tx, opts penstock.BufferOptions) *BufferedTx {
	return &BufferedTx{bufferedSession: &bufferedSession{tx: tx, free: func() {}, shared: true, across: opts.AcrossWrites,
		held: buffer.New[*Outbox, *Queue](opts)}}
}

// Stats counts the messages and jobs, and the flushes by their reasons.
func (b *BufferedTx) Stats() penstock.BufferStats { return b.held.Stats() }

// Flush writes the buffered messages and jobs. Call it before an action outside the database that must not happen unless
// they can be written.
func (b *BufferedTx) Flush(ctx context.Context) error { return b.flush(ctx, penstock.FlushAsked) }

func (b *BufferedTx) publish(ctx context.Context, o *Outbox, msgs []penstock.Message) error {
	if err := b.usable(); err != nil {
		return err
	}
	return b.held.Publish(o, o.table, o.inbox, msgs, func() error { return b.full(ctx) })
}

// Enqueue buffers jobs. Queue.EnqueueTx would write them at once, because it returns their ids. Errors: *penstock.FieldError for a job that
// cannot be carried (then none is buffered), or the error of an earlier write.
func (b *BufferedTx) Enqueue(ctx context.Context, q *Queue, jobs ...penstock.NewJob) (penstock.PendingJobs, error) {
	if err := validJobs(jobs); err != nil {
		return nil, err
	}
	if err := b.usable(); err != nil {
		return nil, err
	}
	ask := func(ctx context.Context) error { return b.flush(ctx, penstock.FlushIDs) }
	return b.held.Enqueue(q, q.manyOf, jobs, ask, func() error { return b.full(ctx) })
}

func (b *BufferedTx) usable() error {
	if b.closed || b.ended {
		return pgx.ErrTxClosed
	}
	return b.failed
}

// full writes the buffer in the background, once the write before has ended.
func (b *BufferedTx) full(ctx context.Context) error {
	if b.shared {
		return b.flush(ctx, penstock.FlushFull)
	}
	if err := b.settle(ctx); err != nil {
		return err
	}
	// The call that filled the buffer returns before the flush has ended: its context may not end it.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	behind := &backgroundFlush{b.held.Take(penstock.FlushFull), cancel, make(chan struct{})}
	b.behind = behind
	go func() {
		defer close(behind.ended)
		_ = b.send(ctx, behind.of)
	}()
	return nil
}

// settle waits until nothing runs in the background.
func (b *BufferedTx) settle(ctx context.Context) error {
	if err := b.usable(); err != nil || b.behind == nil {
		return err
	}
	select {
	case <-b.behind.ended:
	case <-ctx.Done():
		b.behind.cancel()
		<-b.behind.ended
	}
	b.behind.cancel()
	of := b.behind.of
	b.behind = nil
	return b.fail(b.held.Settle(of))
}

// fail has everything but a rollback fail from now on.
func (b *BufferedTx) fail(err error) error {
	if err != nil {
		b.failed, b.bufferedSession.depth = err, b.depth
		b.held.Discard()
	}
	return err
}

// flush writes the buffer, and in the same round trip runs the next statement.
func (b *BufferedTx) flush(ctx context.Context, reason penstock.FlushReason, then ...string) error {
	if err := b.settle(ctx); err != nil {
		return err
	}
	if b.held.Rows() == 0 && len(then) == 0 {
		return nil
	}
	of := &buffer.Flush[*Outbox, *Queue]{}
	if b.held.Rows() > 0 {
		of = b.held.Take(reason)
	}
	err := b.send(ctx, of, then...)
	if failed := b.fail(b.held.Settle(of)); failed != nil {
		return failed
	}
	return err
}

// send writes and reads. An error is that of the next statement; one of the flush is in it.
func (b *bufferedSession) send(ctx context.Context, of *buffer.Flush[*Outbox, *Queue], then ...string) error {
	var batch pgx.Batch
	for i, g := range of.Groups {
		query, args, err := statementOf(g)
		if err != nil {
			of.End(i, err)
			return nil
		}
		batch.Queue(query, args...)
	}
	for _, sql := range then {
		batch.Queue(sql)
	}
	answers := b.tx.SendBatch(ctx, &batch)
	for i, g := range of.Groups {
		if err := readGroup(answers, g); err != nil {
			_ = answers.Close()
			i = culprit(of.Groups, i, err)
			of.End(i, explainWrite(ctx, of.Groups[i], err))
			return nil
		}
	}
	of.End(0, nil)
	for range then {
		tag, err := answers.Exec()
		if err == nil && tag.String() == "ROLLBACK" && then[0] == "commit" {
			err = pgx.ErrTxCommitRollback
		}
		if err != nil {
			_ = answers.Close()
			return err
		}
	}
	return answers.Close()
}

// statementOf writes a group.
func statementOf(g *buffer.Group[*Outbox, *Queue]) (string, []any, error) {
	if g.Outbox != nil {
		return g.Outbox.insertOf(g.Messages)
	}
	return g.Queue.callFor(g.Jobs)
}

func readGroup(answers pgx.BatchResults, g *buffer.Group[*Outbox, *Queue]) error {
	if g.Outbox != nil {
		_, err := answers.Exec()
		return err
	}
	rows, err := answers.Query()
	if err == nil {
		g.Made, err = collectEnqueued(rows, len(g.Jobs))
	}
	return err
}

// culprit is which group an error is about that the first reading, of group i, returned. Statements are prepared
// together before any runs, and of these the server names the object that does not exist.
func culprit(groups []*buffer.Group[*Outbox, *Queue], i int, err error) int {
	if state := sqlState(err); state == "42P01" || state == "42883" {
		for k, g := range groups[i:] {
			if name := strings.ReplaceAll(g.Name, `"`, ""); strings.Contains(err.Error(), name+`"`) || strings.Contains(err.Error(), name+"(") {
				return i + k
			}
		}
	}
	return i
}

func explainWrite(ctx context.Context, g *buffer.Group[*Outbox, *Queue], err error) error {
	if g.Outbox != nil {
		return g.Outbox.explain(ctx, err)
	}
	return g.Queue.refused(ctx, err, "enqueue")
}
