package measure

import (
	"context"
	"errors"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// portableQueue is a queue on plain tables: a job is claimed and acked, a round trip each.
func portableQueue(db Database, order penstock.QueueOrder) contender {
	name := db.Name + "_queue"
	q := db.Plain.DriverQueue(name)
	return contender{
		Database: db, label: "Penstock, on plain tables", sql: db.read("portable", db.words("queue_"+name)), cold: true,
		create: func(ctx context.Context) error { return db.Plain.CreateQueue(ctx, name, order) },
		drop:   func(ctx context.Context) error { return db.Plain.DropQueue(ctx, name) },
		one: func(s *session) (int64, bool, error) {
			jobs, err := q.Claim(s.ctx, driver.Claim{Jobs: 1, Lease: time.Minute})
			if err != nil || len(jobs) == 0 {
				return 0, false, err
			}
			held, err := q.Ack(s.ctx, jobs[0].Lease)
			if err == nil && len(held) == 0 {
				err = errors.New("the lease of a job has ended before its ack")
			}
			return jobs[0].ID, true, err
		},
	}
}
