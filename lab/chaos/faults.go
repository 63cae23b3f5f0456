package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/penstock/penstock/internal/test/tcpproxy"
)

// fault is one thing that goes wrong, and is put right again.
type fault struct {
	name   string
	target string // two faults of one target do not overlap
	blast  blast  // subscriptions that may send again what was not settled
	weight int    // how often it is in the deck
	// do makes it happen, waits, and puts it right even if ctx has ended. It reports whether it did
	// happen: a trap may wait for a request that never comes. A sudden fault calls struck when it has
	// done its harm.
	do func(ctx context.Context, random *rand.Rand, struck func()) (happened bool, err error)
}

// between draws a time.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)+1))
}

// faults are the faults that the rig can make, with two of the network's for each line.
func (r *rig) faults(random *rand.Rand) []fault {
	everyone := subscriptions(routeNames("")...)
	held := blast{}
	if r.store == storeSQLite { // whose only writer keeps all others waiting, so a relay may lose its lease
		held = everyone
	}
	all := []fault{
		r.crash("rabbitmq_killed", "rabbitmq", blast{Routes: routeNames("rabbitmq"), Sudden: true}, r.rabbit),
		r.crash("nats_killed", "nats", blast{Routes: routeNames("nats"), Sudden: true}, r.nats),
		r.refuse("rabbitmq", func(_ context.Context, there bool) error { return r.consumer.route(topicLaterRabbit, there) }),
		r.refuse("nats", func(ctx context.Context, there bool) error { return r.nats.route(ctx, there, false) }),
		r.transaction("snapshot_pinned", blast{}, append(r.pin, "select count(*) from {business}unrelated")...),
		r.transaction("writer_held", held, append(r.hold, "insert into {business}unrelated values (current_timestamp)")...),
	}
	switch r.store {
	case storeMySQL:
		all = append(append(all, r.commitCut(isMySQLCommit)...), r.crash("mysql_killed", "mysql", everyone, r.mysql))
	case storeSQLite:
		all = append(all, fault{"writer_killed", "writer", everyone, 4, r.killSQLiteWriter})
	case storeCitus:
		all = append(append(append(all, r.commitCut(isCommit)...), r.crash("postgres_crashed", "postgres", everyone, recovering{r.postgres, r})), r.citusFaults(everyone)...)
	default:
		all = append(append(all, r.commitCut(isCommit)...), r.crash("postgres_crashed", "postgres", everyone, primary{r}), r.walLost(), r.dumped())
		if r.profile != portable { // which has the order of its keys from the clock
			all = append(all, r.clockStepped())
		}
	}
	lines := []link{r.producers}
	if r.citus != nil {
		lines = append(lines, r.citus.ways...)
	}
	for _, p := range r.processes {
		lines = append(lines, p.links()...)
		all = append(all, p.killed(), p.paused(), p.stopped())
		if p.kind == "relay" {
			all = append(all, r.trap("confirm_cut", 2, p.rabbit, tcpproxy.BeforeAnswer, isAMQPPublish),
				r.trap("confirm_cut", 2, p.nats, tcpproxy.BeforeAnswer, isNATSPublish))
		}
		if p.postgres.proxy != nil {
			all = append(all, r.trap("database_answer_cut", 1, p.postgres, tcpproxy.BeforeAnswer, anything))
		}
	}
	for _, l := range lines {
		if l.proxy == nil {
			continue
		}
		kinds := r.network(l)
		for _, kind := range random.Perm(len(kinds))[:2] {
			all = append(all, kinds[kind])
		}
	}
	return all
}

// shuffled has each fault as often as its weight.
func shuffled(all []fault, random *rand.Rand) (deck []fault) {
	for _, f := range all {
		for range f.weight {
			deck = append(deck, f)
		}
	}
	random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck
}

// primary is whichever PostgreSQL is it at the moment; a fault that crashes it has the target
// postgres for itself.
type primary struct{ *rig }

func (p primary) Kill() error  { return p.postgres.Kill() }
func (p primary) Start() error { return p.postgres.Start() }

// crashable is a server of the test's own.
type crashable interface {
	Kill() error
	Start() error
}

func (r *rig) crash(name, target string, b blast, server crashable) fault {
	return fault{name, target, b, 2, func(ctx context.Context, random *rand.Rand, struck func()) (bool, error) {
		if err := server.Kill(); err != nil {
			return false, err
		}
		struck()
		sleep(ctx, between(random, 0, 2*time.Second))
		return true, server.Start()
	}}
}

func (p *process) killed() fault {
	return fault{p.kind + "_killed", p.name, blast{Routes: routeNames(""), Holder: p.name, Sudden: true}, 3, func(ctx context.Context, random *rand.Rand, struck func()) (bool, error) {
		if err := errors.Join(p.alive(), p.Kill()); err != nil {
			return false, err
		}
		struck()
		sleep(ctx, between(random, 0, 2*lease))
		return true, p.Start()
	}}
}

// paused stops a process for longer than its lease, which another one takes. In SQLite it may keep all others from writing meanwhile.
func (p *process) paused() fault {
	b := p.blast("")
	if p.postgres.proxy == nil {
		b.Holder = ""
	}
	return fault{p.kind + "_paused", p.name, b, 3, func(ctx context.Context, random *rand.Rand, _ func()) (bool, error) {
		if err := p.Pause(); err != nil {
			return false, err
		}
		sleep(ctx, between(random, lease+lease/4, 2*lease))
		return true, p.Resume()
	}}
}

// stopped ends a process in order. It explains no duplicate: what it was sending it
// settles before it goes, and a worker lets its jobs end.
func (p *process) stopped() fault {
	return fault{p.kind + "_stopped", p.name, blast{}, 1, func(ctx context.Context, random *rand.Rand, _ func()) (bool, error) {
		if err := errors.Join(p.alive(), p.Stop()); err != nil {
			return false, err
		}
		sleep(ctx, between(random, 0, lease))
		return true, p.Start()
	}}
}

// network has the faults of a line.
func (r *rig) network(l link) []fault {
	disturb := func(name string, begin func(), least, most time.Duration) fault {
		return fault{name, l.name, l.blast, 1, func(ctx context.Context, random *rand.Rand, _ func()) (bool, error) {
			begin()
			sleep(ctx, between(random, least, most))
			l.proxy.Resume()
			return true, nil
		}}
	}
	return []fault{
		disturb("network_cut", l.proxy.Cut, 0, 0),
		disturb("network_refused", l.proxy.Refuse, 200*time.Millisecond, lease),
		disturb("network_delayed", func() { l.proxy.Delay(20 * time.Millisecond) }, time.Second, 2*lease),
		disturb("network_stalled", func() { l.proxy.Stall(tcpproxy.Both) }, time.Second, 2*lease),
		disturb("network_stalled", func() { l.proxy.Stall(tcpproxy.ToClient) }, time.Second, lease+lease/2),
	}
}

// trap cuts a line between a request and its answer.
func (r *rig) trap(name string, weight int, l link, at tcpproxy.Moment, matches func(said []byte) bool) fault {
	return fault{name, l.name, l.blast, weight, func(ctx context.Context, random *rand.Rand, _ func()) (bool, error) {
		skip := random.IntN(20)
		sprung := l.proxy.Trap(at, func(said []byte) bool {
			if !matches(said) {
				return false
			}
			skip--
			return skip < 0
		})
		defer l.proxy.Trap(at, nil)
		patience := time.NewTimer(lease)
		defer patience.Stop()
		select {
		case <-sprung:
			return true, nil
		case <-patience.C: // a relay that stands by says nothing
		case <-ctx.Done():
		}
		return false, nil
	}}
}

// commitCut cuts the producers off at their commits, which then did or did not happen.
func (r *rig) commitCut(commits func([]byte) bool) []fault {
	return []fault{
		r.trap("commit_cut", 3, r.producers, tcpproxy.BeforeRequest, commits),
		r.trap("commit_answer_cut", 3, r.producers, tcpproxy.BeforeAnswer, commits),
	}
}

func isCommit(said []byte) bool { return bytes.Contains(said, []byte("commit\x00")) }

// isMySQLCommit finds a command of a query.
func isMySQLCommit(said []byte) bool { return bytes.Contains(said, []byte("\x03COMMIT")) }

// isAMQPPublish finds the method Basic.Publish (60, 40) in a frame on channel 1.
func isAMQPPublish(said []byte) bool { return bytes.Contains(said, []byte{0, 60, 0, 40}) }

func isNATSPublish(said []byte) bool { return bytes.Contains(said, []byte("HPUB ")) }

func anything([]byte) bool { return true }

// refuse takes the way to the queue away from some messages.
func (r *rig) refuse(broker string, route func(ctx context.Context, there bool) error) fault {
	return fault{"messages_refused", broker, blast{}, 2, func(ctx context.Context, random *rand.Rand, _ func()) (bool, error) {
		if err := route(ctx, false); err != nil {
			return false, err
		}
		sleep(ctx, between(random, time.Second, 3*lease))
		return true, route(context.WithoutCancel(ctx), true)
	}}
}

// clockStep is by how much at most the primary's clock is off the machine's. A lease
// that was taken ahead of a clock that is then set back lasts that much longer.
const clockStep = 20 * time.Second

// clockStepped sets the primary's clock, forward or back. Set forward, all leases have ended at
// once, so it disturbs every holder of a subscription.
func (r *rig) clockStepped() fault {
	return fault{"clock_stepped", "postgres", blast{Routes: routeNames(""), Sudden: true}, 2, func(_ context.Context, random *rand.Rand, struck func()) (bool, error) {
		err := r.postgres.SetClock(between(random, -clockStep, clockStep))
		struck()
		return err == nil, err
	}}
}

// dumped has pg_dump write to a slow reader: it holds a snapshot, and a lock on every table, for as
// long. It disturbs no subscription.
func (r *rig) dumped() fault {
	return fault{"pg_dump", "pg_dump", blast{}, 2, func(ctx context.Context, random *rand.Rand, _ func()) (bool, error) {
		dump := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(r.bin, "pg_dump"), "--dbname", r.database)
		dump.Env = []string{"HOME=" + r.dir}
		var said bytes.Buffer
		dump.Stderr = &said
		out, err := dump.StdoutPipe()
		if err != nil {
			return false, err
		}
		if err := dump.Start(); err != nil {
			return false, err
		}
		for range 20 {
			sleep(ctx, between(random, 0, lease/4))
			if _, err := io.CopyN(io.Discard, out, 32<<10); err != nil {
				break // io.EOF: that was all
			}
		}
		_, _ = io.Copy(io.Discard, out)     // how it ended, Wait says
		if err := dump.Wait(); err != nil { // PostgreSQL was crashed meanwhile, or just now
			r.chronicle.printf("pg_dump failed: %v: %s", err, bytes.TrimSpace(said.Bytes()))
			return false, nil
		}
		return true, nil
	}}
}
