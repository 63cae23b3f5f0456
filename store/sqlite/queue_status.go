package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"strconv"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

// QueueStatus implements driver.QueueStore. It counts jobs one by one. Bytes is the
// size of the table of jobs in the file, with its index. The small rows about jobs,
// and dead letters, are in tables that queues share.
func (s *Store) QueueStatus(ctx context.Context, names ...string) ([]admin.QueueStatus, error) {
	return s.QueueStatusUpTo(ctx, 0, names...)
}

// QueueStatusUpTo implements driver.QueueStatusCounter. It counts no figure beyond most; 0 means no limit.
// With a most below 0 it counts nothing and returns only the settings.
func (s *Store) QueueStatusUpTo(ctx context.Context, most int, names ...string) ([]admin.QueueStatus, error) {
	all := []admin.QueueStatus{}
	err := s.read(ctx, func(ctx context.Context, tx *sql.Tx) error {
		now := time.Now()
		queues, err := readQueues(ctx, tx, now, most, names)
		if err != nil {
			return err
		}
		for _, q := range queues {
			if most < 0 {
				all = append(all, q.QueueStatus)
				continue
			}
			if q.Bytes, err = s.size(ctx, tx, queueRow{id: q.id, name: q.Queue}.pages()); err != nil {
				return err
			}
			if q.oldest != 0 {
				var createdAt int64
				if err := tx.QueryRowContext(ctx, onQueue(q.Queue, `select created_at from {table} where seq = ?`), q.oldest).Scan(&createdAt); err != nil {
					return err
				}
				q.OldestAge = max(now.Sub(time.UnixMilli(createdAt)), 0)
			}
			all = append(all, q.QueueStatus)
		}
		return nil
	})
	return all, err
}

// queueStatus is a status that is not complete yet.
type queueStatus struct {
	admin.QueueStatus
	id     int64
	oldest int64 // seq of the oldest ready job
}

func (q queueRow) pages() pages {
	return pages{"queue:" + strconv.FormatInt(q.id, 10), []string{unquoted(QueueTable(q.name)), unquoted(quotedName("penstock_ids_of_", q.name))}}
}

func readQueues(ctx context.Context, tx *sql.Tx, now time.Time, most int, names []string) ([]queueStatus, error) {
	limit := max(most, 0)
	if most == 0 {
		limit = -1
	}
	var of any // all
	if len(names) > 0 {
		text, err := json.Marshal(names)
		if err != nil {
			return nil, err
		}
		of = string(text)
	}
	rows, err := tx.QueryContext(ctx, statement("queue_status"), sql.Named("now", now.UnixMicro()), sql.Named("most", limit), sql.Named("names", of))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all []queueStatus
	for rows.Next() {
		var q queueStatus
		var lifo, paused, more bool
		var maxAttempts, maxRunning int
		var window time.Duration
		if err := rows.Scan(&q.id, &q.Queue, &lifo, &paused, &maxAttempts, &maxRunning, &window,
			&q.Ready, &q.oldest, &q.Running, &q.Delayed, &q.Waiting, &q.DeadLetters, &more); err != nil {
			return nil, err
		}
		q.Order = penstock.FIFO
		if lifo {
			q.Order = penstock.LIFO
		}
		q.QueueSettings = penstock.QueueSettings{Paused: &paused, MaxAttempts: &maxAttempts, MaxRunning: &maxRunning, DedupWindow: &window}
		q.Cap(int64(most), more)
		all = append(all, q)
	}
	return all, rows.Err()
}

// orAll is a limit of SQL: 0 means none.
func orAll(most int) int {
	if most == 0 {
		return -1
	}
	return most
}
