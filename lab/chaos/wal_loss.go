package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"
)

// walLost is the name of the fault that the checker has to know of.
const walLost = "wal_lost"

// walLost has the standby hear nothing for a while in which the primary continues, kills the
// primary and promotes the standby. Commits made meanwhile are gone, delivered or not. Then another
// standby follows the new primary. It disturbs every holder of a subscription, until the promotion.
func (r *rig) walLost() fault {
	return fault{walLost, "postgres", blast{Routes: routeNames(""), Sudden: true}, 2, func(ctx context.Context, random *rand.Rand, struck func()) (bool, error) {
		if err := r.postgres.AwaitAsyncStandby(); err != nil {
			return false, err
		}
		r.following.Refuse()
		sleep(ctx, between(random, 500*time.Millisecond, 2500*time.Millisecond))
		if err := r.postgres.Kill(); err != nil {
			return false, err
		}
		sleep(ctx, between(random, 0, time.Second))
		err := r.standby.Promote()
		r.handler.promoted()
		struck()
		if err != nil {
			return true, err
		}
		return true, r.moveOn()
	}}
}

// moveOn makes the promoted standby the primary for all and gives it a standby.
func (r *rig) moveOn() error {
	u, err := url.Parse(r.standby.URL)
	if err != nil {
		return err
	}
	r.front.Redirect(u.Host)
	r.producers.proxy.Redirect(u.Host)
	for _, p := range r.processes {
		p.postgres.proxy.Redirect(u.Host)
	}
	r.losses++
	r.keepLog(fmt.Sprintf("postgres-until-loss-%d", r.losses), r.postgres)
	gone := r.postgres
	r.postgres, r.standby = r.standby, nil
	r.following.Redirect(u.Host)
	r.following.Resume()
	standby, err := r.postgres.NewAsyncStandby(r.following.Addr())
	r.standby = standby
	return errors.Join(err, gone.Close())
}
