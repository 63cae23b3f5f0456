package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/work"
)

// At SIGTERM a program begins nothing more, gives back jobs that have not begun, lets its handlers finish, and exits
// with 0.
func TestSIGTERM(t *testing.T) {
	eachAlone(t, func(g *goal, l *language) {
		q := g.queue()
		g.enqueue("a", "b", "c", "d", "e")
		release := make(chan struct{})
		var begun seen
		g.working(q, func(_ context.Context, j penstock.Job) error {
			begun.add(j)
			<-release
			return nil
		}, work.Options{Concurrency: 1, Lease: time.Hour, DrainTimeout: time.Hour})
		g.eventually("a job has begun", func() bool { return begun.count() == 1 })
		ended := make(chan error, 1)
		go func() { ended <- q.c.terminate() }()
		g.eventually("what has not begun is given back", func() bool { s := g.status(); return s.Ready == 4 && s.Running == 1 })
		close(release)
		must(g, <-ended)
		// Until the signal arrives, a job that ends makes room for the next. No job may be left with a lease.
		var left []penstock.Job
		g.eventually("what has not begun can be claimed", func() bool {
			jobs, err := g.native().Claim(g.ctx, driver.Claim{Jobs: 10, Lease: time.Minute})
			must(g, err)
			left = append(left, jobs...)
			return len(left)+begun.count() >= 5
		})
		if len(left)+begun.count() != 5 || slices.ContainsFunc(left, func(j penstock.Job) bool { return j.Attempt != 1 }) {
			g.Errorf("%d began, and after SIGTERM there are %+v, want all others with their first attempt", begun.count(), left)
		}
	})
}

// A worker that stops aborts handlers that exceed the drain time, and gives their jobs back.
func TestDrainTime(t *testing.T) {
	each(t, func(g *goal, l *language) {
		q := g.queue()
		g.enqueue("a")
		begun, cause := make(chan struct{}), make(chan error, 1)
		stop := g.working(q, func(ctx context.Context, _ penstock.Job) error {
			close(begun)
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return ctx.Err()
		}, work.Options{Lease: time.Hour, DrainTimeout: 2 * time.Second})
		<-begun
		must(g, stop())
		if err := <-cause; !errors.Is(err, work.ErrStopping) {
			g.Errorf("the handler was aborted because of %v, want stopping", err)
		}
		left, err := g.native().Claim(g.ctx, driver.Claim{Jobs: 10, Lease: time.Minute})
		must(g, err)
		if len(left) != 1 || left[0].Attempt != 1 {
			g.Errorf("after it stopped there are %+v, want the job with its first attempt", left)
		}
	})
}

// The writes of a handler of work_tx take effect with the job's end, or not at all.
func TestWorkTx(t *testing.T) {
	each(t, func(g *goal, l *language) {
		execute(g, g.url, "create table effect (payload text)")
		q := g.queue()
		must(g, g.store.CreateOutbox(g.ctx, "orders"))
		g.enqueue("good", "bad")
		var bad seen
		ctx, cancel := context.WithCancel(g.ctx)
		ended := make(chan error, 1)
		go func() {
			ended <- q.work(ctx, func(ctx context.Context, given string, j penstock.Job) error {
				t := &remoteTx{c: q.c, tx: given, kind: "work_tx"}
				if _, err := t.execute(ctx, fmt.Sprintf("insert into effect values ('%s')", j.Payload)); err != nil {
					g.Error(err)
				}
				if err := t.Publish(ctx, "orders", penstock.Message{Topic: "t", Payload: j.Payload}); err != nil {
					g.Error(err)
				}
				if string(j.Payload) == "bad" {
					bad.add(j)
					return penstock.Permanent(errors.New("no good"))
				}
				return nil
			}, work.Options{}, args{"work_tx": true})
		}()
		g.eventually("both have run", func() bool { s := g.status(); return s.DeadLetters == 1 && s.Ready+s.Running+s.Delayed == 0 })
		cancel()
		must(g, <-ended)
		t, err := q.c.begin(g.ctx)
		must(g, err)
		rows, err := t.execute(g.ctx, "select payload, (select string_agg(convert_from(payload, 'UTF8'), ' ') from penstock.orders), null::int from effect")
		must(g, err)
		must(g, t.Rollback(g.ctx))
		if len(rows) != 1 || len(rows[0]) != 3 || *rows[0][0] != "good" || *rows[0][1] != "good" || rows[0][2] != nil || bad.count() != 1 {
			g.Errorf("the effects are %v, want what the good job did, once", rows)
		}
	})
}

// A worker claims with ack_claim, even if it has nothing to ack, because jobs that end many at a time may share a lease. If handlers end their
// jobs in their own transactions, it claims with claim, because these transactions would wait for each other.
func TestWhichClaim(t *testing.T) {
	each(t, func(g *goal, l *language) {
		q := g.queue()
		drained := func() bool { s := g.status(); return s.Ready+s.Running == 0 }
		for _, c := range []struct{ left, other, arguments string }{
			{"ack_claim", "claim", "text, int, interval, text, text"},
			{"claim", "ack_claim", "text, bigint[], int, interval, text, text"},
		} {
			ctx, cancel := context.WithCancel(g.ctx)
			ended := make(chan error, 1)
			go func() {
				ended <- q.work(ctx, func(context.Context, string, penstock.Job) error { return nil }, work.Options{}, args{"work_tx": c.left == "claim"})
			}()
			if c.left == "claim" {
				g.enqueue("first") // from which the worker learns how its jobs end
				g.eventually("the first job is done", drained)
			}
			execute(g, g.url, fmt.Sprintf(`alter function penstock.%[1]s(%[2]s) rename to %[1]s_was;
				create function penstock.%[1]s(%[2]s) returns setof penstock.leased_job language sql as 'select (null::penstock.leased_job).* where false'`, c.other, c.arguments))
			g.enqueue("a", "b", "c")
			g.eventually("jobs are done by "+c.left+" alone", drained)
			cancel()
			must(g, <-ended)
			execute(g, g.url, fmt.Sprintf(`drop function penstock.%[1]s(%[2]s); alter function penstock.%[1]s_was(%[2]s) rename to %[1]s`, c.other, c.arguments))
		}
	})
}

// A job whose lease has ended while the claim's answer was on the way does not begin. The worker extends it first, or leaves it to the next claim.
func TestLateClaim(t *testing.T) { lateClaim(t, true) }

// Nor does it if the extension has no answer.
func TestLateClaimWithoutAnswer(t *testing.T) { lateClaim(t, false) }

func lateClaim(t *testing.T, answers bool) {
	each(t, func(g *goal, l *language) {
		if !answers {
			execute(g, g.url, `create sequence asked;
				alter function penstock.extend_many(text, bigint[], interval) rename to extend_many_was;
				create function penstock.extend_many(queue text, leases bigint[], by interval) returns setof bigint language plpgsql as $$ begin
					if nextval('asked') = 1 then raise exception 'no answer' using errcode = '57014'; end if;
					return query select * from penstock.extend_many_was(queue, leases, by);
				end $$`)
		}
		const lease = 2 * time.Second
		execute(g, g.url, "create sequence late")
		for name, arguments := range map[string]string{"claim": "text, int, interval, text, text", "ack_claim": "text, bigint[], int, interval, text, text"} {
			calls := "$1, $2, $3, $4, $5"
			if name == "ack_claim" {
				calls += ", $6"
			}
			execute(g, g.url, fmt.Sprintf(`alter function penstock.%[1]s(%[2]s) rename to %[1]s_was;
				create function penstock.%[1]s(%[2]s) returns setof penstock.leased_job language plpgsql as $$ begin
					return query select * from penstock.%[1]s_was(%[3]s);
					if found and nextval('late') = 1 then perform pg_sleep(%[4]v); end if;
				end $$`, name, arguments, calls, (lease+time.Second).Seconds()))
		}
		q := g.queue()
		g.enqueue("a")
		conn := g.connect()
		var ran seen
		lasts := make(chan bool, 1)
		g.working(q, func(ctx context.Context, j penstock.Job) (err error) {
			var last bool
			err = conn.QueryRow(ctx, "select max(lease_until) > clock_timestamp() from penstock._lease where queue > 0").Scan(&last)
			lasts <- last
			ran.add(j)
			return err
		}, work.Options{Lease: lease})
		if !<-lasts {
			g.Error("the job began after its lease")
		}
		g.eventually("the job is done", func() bool { s := g.status(); return s.Ready+s.Running == 0 })
	})
}

// A worker extends the lease of a job that takes longer: the lease in the database outlasts the claimed one, and the handler continues.
func TestLeaseIsExtended(t *testing.T) {
	each(t, func(g *goal, l *language) {
		q := g.queue()
		g.enqueue("long")
		conn := g.connect()
		var ran seen
		ended := make(chan error, 1)
		g.working(q, func(ctx context.Context, j penstock.Job) error {
			ran.add(j)
			for {
				var extended bool
				err := conn.QueryRow(ctx, "select max(lease_until) > $1 from penstock._lease where queue > 0", j.LeaseUntil).Scan(&extended)
				if err != nil && ctx.Err() == nil || extended {
					ended <- err
					return err
				}
				select {
				case <-ctx.Done():
					ended <- context.Cause(ctx)
					return ctx.Err()
				case <-time.After(50 * time.Millisecond):
				}
			}
		}, work.Options{Lease: 9 * time.Second}) // it is extended at a third, long before it ends
		if err := <-ended; err != nil || ran.count() != 1 {
			g.Errorf("the job ran as %q and ended with %v, want one whose lease was extended", ran.attempts(), err)
		}
	})
}
