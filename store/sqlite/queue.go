package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/tables"
)

var _ driver.QueueStore = (*Store)(nil)

// QueueTable returns the quoted name of the table with a queue's jobs, for plain
// INSERTs: penstock_queue_ and the queue's name, with the suffix that Table
// explains.
func QueueTable(queue string) string { return quotedName("penstock_queue_", queue) }

// onQueue puts the table of a queue into a statement.
func onQueue(queue, statement string) string { return on(QueueTable(queue), statement) }

// CreateQueue implements driver.QueueStore. After it, an application can insert into
// QueueTable(name).
func (s *Store) CreateQueue(ctx context.Context, name string, order penstock.QueueOrder) error {
	if err := cmp.Or(penstock.ValidateQueueName(name), order.Validate()); err != nil {
		return err
	}
	return s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := nameFree(ctx, tx, "queue", name); err != nil {
			return err
		}
		done, err := tx.ExecContext(ctx, `insert into penstock_queues (name, lifo, created_at) values (?, ?, ?)`,
			name, order == penstock.LIFO, time.Now().UnixMicro())
		if err != nil {
			return err
		}
		id, err := done.LastInsertId()
		if err != nil {
			return err
		}
		sign := ""
		if order == penstock.LIFO {
			sign = "-"
		}
		parts := []string{"{table}", QueueTable(name), "{queue}", strconv.FormatInt(id, 10), "{sign}", sign}
		for _, part := range []string{"ids", "scheduled", "ready", "keyed", "ended", "fixed"} {
			parts = append(parts, "{"+part+"}", quotedName("penstock_"+part+"_of_", name))
		}
		_, err = tx.ExecContext(ctx, strings.NewReplacer(parts...).Replace(statement("create_queue")))
		return err
	})
}

// nameFree is an error if an outbox or a queue has the name of a new one of kind.
func nameFree(ctx context.Context, q querier, kind, name string) error {
	var has string
	err := q.QueryRowContext(ctx, `select 'outbox' from penstock_outboxes where name = ?1 union all select 'queue' from penstock_queues where name = ?1`, name).Scan(&has)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return cmp.Or(err, tables.Taken(kind, name, has))
}

// DropQueue implements driver.QueueStore.
func (s *Store) DropQueue(ctx context.Context, name string) error {
	var q queueRow
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		if q, err = findQueue(ctx, tx, name); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, onQueue(name, `drop table {table}`)); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, statement("drop_queue"), q.id)
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.sizes, q.pages().as)
	}
	return err
}

// SetQueue implements driver.QueueStore.
func (s *Store) SetQueue(ctx context.Context, name string, set penstock.QueueSettings) error {
	if err := set.ValidateWithoutHistory(); err != nil {
		return err
	}
	return s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var window *int64
		if set.DedupWindow != nil {
			window = new(set.DedupWindow.Nanoseconds())
		}
		done, err := tx.ExecContext(ctx, statement("set_queue"), sql.Named("queue", name), sql.Named("paused", set.Paused),
			sql.Named("max_attempts", set.MaxAttempts), sql.Named("max_running", set.MaxRunning), sql.Named("dedup_window", window))
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return tables.NoQueue(name)
	})
}

// queueRow is one row of penstock_queues.
type queueRow struct {
	id          int64
	name        string
	lifo        bool
	maxAttempts int
	dedupWindow time.Duration
}

func findQueue(ctx context.Context, q querier, name string) (queueRow, error) {
	row := queueRow{name: name}
	err := q.QueryRowContext(ctx, `select id, lifo, max_attempts, dedup_window from penstock_queues where name = ?`, name).
		Scan(&row.id, &row.lifo, &row.maxAttempts, &row.dedupWindow)
	if errors.Is(err, sql.ErrNoRows) {
		return row, tables.NoQueue(name)
	}
	return row, err
}

// sign makes ranks of seqs.
func (q queueRow) sign() int {
	if q.lifo {
		return -1
	}
	return 1
}

// Queue is one queue, to enqueue jobs and to work on them. Safe for concurrent use.
type Queue struct {
	store *Store
	name  string
}

var (
	_ driver.Queue       = (*Queue)(nil)
	_ driver.Releaser    = (*Queue)(nil)
	_ driver.GroupFinder = (*Queue)(nil)
)

// Queue returns a queue. It does not check that there is one.
func (s *Store) Queue(name string) *Queue { return &Queue{s, name} }

// DriverQueue implements driver.QueueStore.
func (s *Store) DriverQueue(name string) driver.Queue { return s.Queue(name) }
