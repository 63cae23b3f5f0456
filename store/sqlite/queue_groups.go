package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
)

// behindGroup is the text that comes next after a group in the order of bytes: groups have no NUL.
func behindGroup(group string) string { return group + "\x01" }

// ReadyGroups implements driver.GroupFinder. Like Claim it makes jobs ready that have become due.
func (q *Queue) ReadyGroups(ctx context.Context, groups []string, behind string, most int) (found []string, err error) {
	var at claimable
	read := func(ctx context.Context, tx *sql.Tx) (err error) {
		if at, err = readClaimable(ctx, tx, q.name, driver.Claim{Jobs: 1}, time.Now()); err == nil && at.room > 0 {
			found, err = readyGroups(ctx, tx, at.id, groups, behind, most)
		}
		return err
	}
	if err = q.store.read(ctx, read); err != nil || !at.due {
		return found, err
	}
	err = q.store.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := maintain(ctx, tx, at.queueRow, time.Now()); err != nil {
			return err
		}
		return read(ctx, tx)
	})
	return found, err
}

func readyGroups(ctx context.Context, tx *sql.Tx, queue int64, groups []string, behind string, most int) (found []string, err error) {
	if len(groups) > 0 {
		return readColumn[string](ctx, tx, statement("ready_of_groups"), sql.Named("queue", queue), sql.Named("groups", array(groups)), sql.Named("behind", behind), sql.Named("most", most))
	}
	for _, part := range [][2]any{{behindGroup(behind), nil}, {"", behind}} {
		some, err := readColumn[string](ctx, tx, statement("ready_groups"), sql.Named("queue", queue), sql.Named("from", part[0]), sql.Named("upto", part[1]), sql.Named("most", most-len(found)))
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

// QueueGroups implements driver.QueueStore. It counts jobs one by one.
func (s *Store) QueueGroups(ctx context.Context, name, after string, most int) ([]admin.GroupStatus, error) {
	all := []admin.GroupStatus{}
	err := s.read(ctx, func(ctx context.Context, tx *sql.Tx) error {
		row, err := findQueue(ctx, tx, name)
		if err != nil {
			return err
		}
		from := ""
		if after != "" {
			from = behindGroup(after)
		}
		now := time.Now()
		rows, err := tx.QueryContext(ctx, onQueue(name, statement("queue_groups")), sql.Named("queue", row.id), sql.Named("from", from), sql.Named("now", now.UnixMicro()), sql.Named("most", most))
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var g admin.GroupStatus
			var oldest int64
			if err := rows.Scan(&g.Group, &g.Ready, &g.Running, &g.Delayed, &g.Waiting, &g.DeadLetters, &oldest); err != nil {
				return err
			}
			if oldest != 0 {
				g.OldestAge = max(now.Sub(time.UnixMilli(oldest)), 0)
			}
			all = append(all, g)
		}
		return rows.Err()
	})
	return all, err
}
