package conformance_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/work"
)

// fill enqueues n jobs of each group, whose payload is the group.
func (g *goal) fill(n int, groups ...string) {
	g.Helper()
	for _, group := range groups {
		_, err := g.native().Enqueue(g.ctx, slices.Repeat([]penstock.NewJob{{Group: group, Payload: []byte(group)}}, n)...)
		must(g, err)
	}
}

// A worker of all groups gives each as many jobs in a round as it weighs, and a group with one job has its turn in the first round.
func TestGroupsTakeTurns(t *testing.T) {
	each(t, func(g *goal, l *language) {
		q := g.queue()
		must(g, g.store.SetGroup(g.ctx, queue, penstock.GroupPolicy{Group: "b", Weight: 3}))
		g.fill(20, "a", "b")
		g.fill(1, "c", "")
		var ran seen
		stop := g.working(q, func(_ context.Context, j penstock.Job) error { ran.add(j); return nil }, work.Options{AllGroups: true, Concurrency: 1, Batch: 1})
		g.eventually("all are done", func() bool { s := g.status(); return s.Ready+s.Running == 0 })
		must(g, stop())
		order := ""
		for _, j := range ran.jobs {
			order += string(j.Payload) + "|"
		}
		if want := "a|b|b|b|c||a|b|b|b|a|b|b|b|a|"; !strings.HasPrefix(order, want) || ran.count() != 42 {
			g.Errorf("%d jobs ran, in the order %s, want 42 that begin with %s", ran.count(), order, want)
		}
	})
}

// One search finds 16 groups. The next one begins behind them, so each of 20 groups has a turn before one has a second.
func TestManyGroupsTakeTurns(t *testing.T) {
	each(t, func(g *goal, l *language) {
		q := g.queue()
		groups := strings.Split("abcdefghijklmnopqrst", "")
		g.fill(3, groups...)
		var ran seen
		stop := g.working(q, func(_ context.Context, j penstock.Job) error { ran.add(j); return nil }, work.Options{AllGroups: true, Concurrency: 1, Batch: 1})
		g.eventually("all are done", func() bool { s := g.status(); return s.Ready+s.Running == 0 })
		must(g, stop())
		first := map[string]bool{}
		for _, j := range ran.jobs[:len(groups)] {
			first[string(j.Payload)] = true
		}
		if len(first) != len(groups) || ran.count() != 60 {
			g.Errorf("%d jobs ran, the first %d of %d groups, want 60 and each group once", ran.count(), len(groups), len(first))
		}
	})
}

// fullClaim claims jobs of several groups as driver.GroupClaimer says. It fails if no limit is close, or if an acked job was not held.
func (g *goal) fullClaim(q remoteQueue, acks []penstock.Job, groups ...string) (claimed []penstock.Job, payloads string) {
	g.Helper()
	held := make([]int64, len(acks))
	for i, j := range acks {
		held[i] = j.Lease
	}
	acked, claimed, err := q.AckClaimGroups(g.ctx, held, groups, driver.Claim{Jobs: 1, Lease: time.Hour, Worker: "w"})
	must(g, err)
	full := slices.Contains(acked, driver.Full)
	acked = slices.DeleteFunc(acked, func(lease int64) bool { return lease == driver.Full })
	slices.Sort(acked)
	slices.Sort(held)
	if !full || !slices.Equal(acked, held) {
		g.Errorf("a claim of %q ended %d and says that a limit is close: %t; want %d, and that it is", groups, acked, full, held)
	}
	for _, j := range claimed {
		payloads += string(j.Payload)
	}
	return claimed, payloads
}

// One claim brings jobs of several groups, of each as many as its limit has room for once the acked jobs have ended.
func TestClaimOfSeveralGroups(t *testing.T) {
	each(t, func(g *goal, l *language) {
		q := g.queue()
		must(g, g.store.SetGroup(g.ctx, queue, penstock.GroupPolicy{Group: "*", MaxRunning: 1}))
		must(g, g.store.SetGroup(g.ctx, queue, penstock.GroupPolicy{Group: "c", MaxRunning: 3}))
		g.fill(4, "a", "b", "c")
		first, got := g.fullClaim(q, nil, "a", "b", "c", "c")
		second, also := g.fullClaim(q, nil, "c", "c", "a", "b")
		_, last := g.fullClaim(q, append(first[1:2], second...), "b", "a", "a", "c", "c")
		if all := got + " " + also + " " + last; all != "abcc c bc" {
			g.Errorf("the claims brought jobs of the groups %s, want abcc c bc", all)
		}
	})
}

// Under limits a worker claims jobs of all groups that have room with one call, which also ends the jobs that are done.
func TestLimitedGroupsAreClaimedTogether(t *testing.T) {
	each(t, func(g *goal, l *language) {
		q := g.queue()
		must(g, g.store.SetGroup(g.ctx, queue, penstock.GroupPolicy{Group: "*", MaxRunning: 1}))
		groups := strings.Split("abcdefgh", "")
		g.fill(3, groups...)
		const arguments = "n int, lease interval, in_group text, worker text, acks bigint[]"
		execute(g, g.url, `create table calls (tx xid8 default pg_current_xact_id(), in_group text);
			alter function penstock."_jobs.claim" rename to claim_was;
			create function penstock."_jobs.claim"(`+arguments+` default null) returns setof penstock.leased_job language plpgsql as $$ begin
				insert into public.calls (in_group) values (in_group);
				return query select * from penstock.claim_was(n, lease, in_group, worker, acks);
			end $$`)
		begun, release := make(chan struct{}, 3*len(groups)), make(chan struct{})
		stop := g.working(q, func(context.Context, penstock.Job) error {
			begun <- struct{}{}
			<-release
			return nil
		}, work.Options{AllGroups: true, Concurrency: len(groups)})
		for range groups {
			<-begun
		}
		var claims, calls int
		must(g, g.connect().QueryRow(g.ctx, "select count(distinct tx), count(*) from calls").Scan(&claims, &calls))
		if claims != 2 || calls != len(groups) {
			g.Errorf("%d jobs of as many groups were claimed with %d calls for %d groups; want one for the first, which says that a limit is close, and one for the others", len(groups), claims, calls)
		}
		close(release)
		g.eventually("all are done", func() bool { s := g.status(); return s.Ready+s.Running == 0 })
		must(g, stop())
	})
}

// A worker of some groups serves these, also if they get jobs later, and leaves the others alone.
func TestSomeGroups(t *testing.T) {
	each(t, func(g *goal, l *language) {
		q := g.queue()
		g.fill(50, "a", "b", "c")
		var ran seen
		stop := g.working(q, func(_ context.Context, j penstock.Job) error { ran.add(j); return nil }, work.Options{Groups: []string{"c", "", "a"}})
		g.eventually("those of two groups are done", func() bool { s := g.status(); return s.Ready == 50 && s.Running == 0 })
		g.fill(1, "", "b", "a")
		g.eventually("the later ones are done as well", func() bool { s := g.status(); return s.Ready == 51 && s.Running == 0 })
		must(g, stop())
		if strings.Contains(ran.attempts(), "b") || ran.count() != 102 {
			g.Errorf("%d jobs ran as %s, want 102, and none of b", ran.count(), ran.attempts())
		}
	})
}

// After the timeout of a job its handler is aborted, and the attempt has failed for that reason. A job that ends in time does not notice.
func TestTimeoutOfAJob(t *testing.T) {
	each(t, func(g *goal, l *language) {
		q := g.queue()
		conn := g.connect()
		for _, kind := range q.c.hello.Kinds {
			_, err := g.native().Enqueue(g.ctx, penstock.NewJob{Timeout: 100 * time.Millisecond, MaxAttempts: 1, Payload: []byte("slow")}, penstock.NewJob{Timeout: time.Hour})
			must(g, err)
			cause := make(chan error, 1)
			ctx, cancel := context.WithCancel(g.ctx)
			ended := make(chan error, 1)
			go func() {
				ended <- q.work(ctx, func(ctx context.Context, _ string, j penstock.Job) error {
					if string(j.Payload) == "slow" {
						<-ctx.Done()
						cause <- context.Cause(ctx)
						return ctx.Err()
					}
					return nil
				}, work.Options{Lease: time.Hour}, args{"kind": kind})
			}()
			g.eventually("one is dead and one is done", func() bool { s := g.status(); return s.DeadLetters == 1 && s.Ready+s.Running+s.Delayed == 0 })
			cancel()
			must(g, <-ended)
			if err := <-cause; !errors.Is(err, context.DeadlineExceeded) {
				g.Errorf("%s: the handler was aborted because of %v, want its timeout", kind, err)
			}
			var reason string
			must(g, conn.QueryRow(g.ctx, "select error from penstock.dead_jobs('jobs')").Scan(&reason))
			if !strings.Contains(reason, "the job ran longer than its timeout of ") {
				g.Errorf("%s: the dead letter says %q, want its timeout", kind, reason)
			}
			execute(g, g.url, "select penstock.discard_dead_jobs('jobs', array(select id from penstock.dead_jobs('jobs')))")
		}
	})
}
