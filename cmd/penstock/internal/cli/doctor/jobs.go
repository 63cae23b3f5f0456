package doctor

import (
	"context"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/internal/doctor"
)

// jobs reports jobs that fail and are tried again, kinds without a worker, schedules that no worker fires, and barriers that no program seals.
func (e *examination) jobs(ctx context.Context, now *look) error {
	for i := range now.queues {
		found, err := cli.Troubles(ctx, e.store, &now.queues[i], e.o.Old, now.at)
		if err != nil {
			return err
		}
		e.add(found...)
	}
	return nil
}

// kinds names those that no worker has taken, among the dead letters of queues.
func (e *examination) kinds(ctx context.Context) {
	const most = 1000
	store, ok := e.store.(cli.DeadJobStore)
	if !ok {
		return
	}
	for i := range e.found {
		f := &e.found[i]
		if f.Check != doctor.CheckDead || f.Severity == doctor.OK {
			continue
		}
		dead, err := store.DeadJobs(ctx, admin.DeadJobQuery{Queue: f.About, Error: "no handler for kind", Limit: most, Bytes: 1 << 20})
		if err != nil || len(dead) == 0 {
			continue // a subscription, or the count is enough
		}
		of := map[string]int{}
		for j := range dead {
			of[dead[j].Job.Kind()]++
		}
		f.Found += "; " + cli.NoHandlerFor(of)
	}
}
