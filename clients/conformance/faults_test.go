package conformance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/work"
)

// through is the database's URL with another host.
func (g *goal) through(host string) string {
	g.Helper()
	u, err := url.Parse(g.url)
	must(g, err)
	u.Host = host
	return u.String()
}

// drained waits until no job is left, and returns how often each job ran.
func (g *goal) drained(ran *seen) map[string]int {
	g.Helper()
	g.eventually("nothing is left to do", func() bool { s := g.status(); return s.Ready+s.Running+s.Delayed+s.Waiting == 0 })
	ran.mu.Lock()
	defer ran.mu.Unlock()
	times := map[string]int{}
	for _, j := range ran.jobs {
		times[string(j.Payload)]++
	}
	return times
}

// Behind a pooler in transaction mode without prepared statements, each statement of a worker may run on
// another connection of the database. Other workers may have prepared statements there. Two workers share two
// connections.
func TestWorkersBehindAPooler(t *testing.T) {
	each(t, func(g *goal, l *language) {
		pooler, err := url.Parse(testserver.StartPgBouncer(g, g.url, "default_pool_size = 2").URL)
		must(g, err)
		q := g.queue()
		if l.Name == "go" {
			g.Skip("Go's workers say in their URL that they prepare nothing")
		}
		const jobs = 200
		var all []penstock.NewJob
		for i := range jobs {
			all = append(all, penstock.NewJob{Payload: fmt.Append(nil, i)})
		}
		_, err = q.Enqueue(g.ctx, all...)
		must(g, err)
		var ran seen
		for range 2 {
			pooled := remoteQueue{c: q.c.open(g, g.through(pooler.Host)), name: queue}
			g.working(pooled, func(_ context.Context, j penstock.Job) error {
				ran.add(j)
				switch {
				case j.Attempt > 1:
					return nil
				case bytes.HasSuffix(j.Payload, []byte("3")):
					return errors.New("once more")
				case bytes.HasSuffix(j.Payload, []byte("7")):
					return penstock.Permanent(errors.New("no good"))
				}
				return nil
			}, work.Options{Concurrency: 3, Batch: 7, Lease: time.Minute})
		}
		times := g.drained(&ran)
		if s := g.status(); len(times) != jobs || s.DeadLetters != jobs/10 {
			g.Errorf("%d jobs ran and %d are dead letters, want %d and %d", len(times), s.DeadLetters, jobs, jobs/10)
		}
		if said := q.c.said.String(); strings.Contains(said, "prepared statement") {
			g.Errorf("the workers met prepared statements of others:\n%s", said)
		}
		for job, n := range times {
			if want := 1 + strings.Count(job[len(job)-1:], "3"); n != want {
				g.Errorf("job %s ran %d times, want %d: a statement was refused or another one's", job, n, want)
			}
		}
	})
}

// A worker continues although its connection is lost while a claim's answer is in transit, again and again. The jobs of that claim belong
// to no worker until their leases end, and then they run.
func TestConnectionsLost(t *testing.T) {
	each(t, func(g *goal, l *language) {
		direct, err := url.Parse(g.url)
		must(g, err)
		proxy := tcpproxy.New(g, direct.Host)
		q := g.queue()
		const jobs = 40
		var all []penstock.NewJob
		for i := range jobs {
			all = append(all, penstock.NewJob{Payload: fmt.Append(nil, i), Key: []string{"", "a", "b"}[i%3]})
		}
		_, err = q.Enqueue(g.ctx, all...)
		must(g, err)
		lost := proxy.Trap(tcpproxy.BeforeAnswer, func(said []byte) bool { return bytes.Contains(said, []byte("claim")) })
		random := testseed.New(g.Name(), 0)
		var mu sync.Mutex // of random
		var ran seen
		stop := g.working(remoteQueue{c: q.c.open(g, g.through(proxy.Addr())), name: queue}, func(_ context.Context, j penstock.Job) error {
			mu.Lock()
			cut := ran.count() < jobs/2 && random.IntN(8) == 0
			mu.Unlock()
			ran.add(j)
			if cut {
				proxy.Cut()
			}
			return nil
		}, work.Options{Concurrency: 4, Batch: 8, Lease: 2 * time.Second})
		times := g.drained(&ran)
		must(g, stop())
		select {
		case <-lost:
		default:
			g.Error("no connection was lost in a claim")
		}
		if len(times) != jobs {
			g.Errorf("%d jobs ran, want %d", len(times), jobs)
		}
	})
}

// In a caller's transaction that has failed, nothing is written, the database's error is returned, and nothing else is affected.
func TestFailedTransaction(t *testing.T) {
	each(t, func(g *goal, l *language) {
		q := g.queue()
		must(g, g.store.CreateOutbox(g.ctx, "orders"))
		for _, kind := range q.c.hello.Kinds {
			t, err := q.c.beginAs(g.ctx, kind)
			must(g, err)
			must(g, t.Publish(g.ctx, "orders", penstock.Message{Topic: kind}))
			if _, err := t.execute(g.ctx, "select 1/0"); err == nil {
				g.Fatalf("%s: divided by zero", kind)
			}
			for what, err := range map[string]error{
				"publish": t.Publish(g.ctx, "orders", penstock.Message{Topic: kind}),
				"enqueue": func() error { _, err := t.Enqueue(g.ctx, queue, penstock.NewJob{}); return err }(),
			} {
				if err == nil || !strings.Contains(err.Error(), "25P02") {
					g.Errorf("%s: %s in a failed transaction: got %v, want SQLSTATE 25P02", kind, what, err)
				}
			}
			must(g, t.Rollback(g.ctx))
			t, err = q.c.beginAs(g.ctx, kind)
			must(g, err)
			_, err = t.Enqueue(g.ctx, queue, penstock.NewJob{})
			must(g, err)
			must(g, t.Commit(g.ctx))
		}
		if s := g.status(); int(s.Ready) != len(q.c.hello.Kinds) {
			g.Errorf("%d jobs are ready, want one for each of %v", s.Ready, q.c.hello.Kinds)
		}
	})
}
