package main

import (
	"context"
	"math/rand/v2"
	"time"
)

// failOver kills the primary about a third into the run and promotes the standby
// a moment later, as a cluster manager would. The primary does not come back.
func (r *rig) failOver(ctx context.Context, run time.Duration, random *rand.Rand) error {
	sleep(ctx, run/4+between(random, 0, run/6))
	e := r.chronicle.begin("primary_killed", "postgres", subscriptions(routeNames("")...))
	if err := r.postgres.Kill(); err != nil {
		return err
	}
	sleep(ctx, between(random, 0, 2*time.Second))
	err := r.standby.Promote()
	r.chronicle.end(e, true)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
