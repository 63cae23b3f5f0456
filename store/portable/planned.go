package portable

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// planned are the statements of a claim and of an ack. To plan them takes most of their time. Their plans do not depend on statistics: a claim uses nothing
// but indexes, and an ack finds rows by whole keys. So a connection prepares them. Behind a pooler it does not: prepared statements belong to a session,
// and a pooler gives each transaction another session.
var planned = map[string]bool{"lock_queue": true, "lock_turn": true, "claim": true, "withdraw": true, "end_jobs": true, "by_plan": true}

const (
	// A statement is prepared at its second use on a connection, because a process may make one call and end.
	preparedAt = 2
	// mostPrepared bounds the memory of a session that serves many queues.
	mostPrepared = 200
)

// prepare prepares the planned statements of a batch.
func (s *Store) prepare(ctx context.Context, conn *pgx.Conn, b *pgx.Batch) error {
	if !s.direct.Load() {
		return nil
	}
	const key = "penstock.uses"
	uses, ok := conn.PgConn().CustomData()[key].(map[string]int)
	if !ok {
		uses = map[string]int{}
		conn.PgConn().CustomData()[key] = uses
	}
	for _, q := range b.QueuedQueries {
		if _, is := s.planned.Load(q.SQL); !is {
			continue
		}
		if uses[q.SQL]++; uses[q.SQL] != preparedAt {
			continue
		}
		if len(uses) > mostPrepared {
			if err := conn.DeallocateAll(ctx); err != nil {
				return err
			}
			clear(uses)
		}
		if _, err := conn.Prepare(ctx, q.SQL, q.SQL); err != nil {
			delete(uses, q.SQL)
			return err
		}
	}
	return nil
}
