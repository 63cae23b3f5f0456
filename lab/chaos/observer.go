package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"strings"
	"sync"
	"time"
)

// observer asks penstock status all the while and keeps its answers.
type observer struct {
	rig *rig

	mu      sync.Mutex
	samples map[string][]sample
	queue   queueStatus      // the latest
	running map[string]int64 // the most jobs of each group that ran at a time
}

// sampleEvery is the pause between two questions; each is a separate process.
const sampleEvery = 700 * time.Millisecond

func (o *observer) run(ctx context.Context) {
	for ctx.Err() == nil {
		// PostgreSQL may be down. Then there is no sample.
		_ = o.sample(ctx)
		sleep(ctx, sampleEvery)
	}
}

// awaitSubscriptions waits until the relays have made them all. Messages written before may be settled by those that are there already;
// on plain tables they are gone then, and the others begin behind them.
func (o *observer) awaitSubscriptions(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if err := o.sample(ctx); err != nil {
			return fmt.Errorf("waiting until the relays have made all subscriptions: %w", err)
		}
		if len(o.latest()) == len(routes) {
			return nil
		}
		sleep(ctx, sampleEvery/10)
	}
}

// sample asks once.
func (o *observer) sample(ctx context.Context) error {
	from := time.Now()
	all, jobs, err := o.rig.status(ctx)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = jobs
	for _, g := range jobs.Groups {
		o.running[g.Group] = max(o.running[g.Group], g.Running)
	}
	for _, s := range all {
		o.add(s.Subscription, sample{From: from, To: time.Now(), Epoch: s.Epoch, Settled: s.Settled, Backlog: s.Backlog, Parked: s.Parked, Holder: s.Holder})
	}
	return nil
}

func (o *observer) add(name string, s sample) {
	before := o.samples[name]
	if len(before) > 0 {
		if last := before[len(before)-1]; last.Epoch != s.Epoch {
			o.rig.chronicle.note("takeover", fmt.Sprintf("of %s by %q, epoch %d", name, s.Holder, s.Epoch), subscriptions(name), last.From, s.To)
		}
	}
	o.samples[name] = append(before, s)
}

// latest is the last sample of each subscription.
func (o *observer) latest() map[string]sample {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[string]sample{}
	for name, samples := range o.samples {
		all[name] = samples[len(samples)-1]
	}
	return all
}

func (o *observer) jobs() queueStatus {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queue
}

func (o *observer) takeovers() (n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, samples := range o.samples {
		for i := 1; i < len(samples); i++ {
			n += max(0, samples[i].Epoch-samples[i-1].Epoch) // lost WAL takes it back
		}
	}
	return n
}

// all is a copy of every sample, and the most jobs of each group that ran at a time.
func (o *observer) all() (map[string][]sample, map[string]int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.samples), maps.Clone(o.running)
}

// The warnings of relays and workers concern the machine as it is: a lease that ran out because two processors
// were busy, a broker that answered late. That explains duplicates like a fault does. Their
// warnings about single messages and jobs do not; that leases of jobs could not be extended is about the machine.
var (
	logTime         = regexp.MustCompile(`^time=(\S+) level=(?:WARN|ERROR) msg=("[^"]*"|\S+)`)
	logSubscription = regexp.MustCompile(` subscription=(\S+)`)
	logLoss         = regexp.MustCompile(`lease was gone|lease of a job was lost|job was removed`)
	logJob          = regexp.MustCompile(` job=(\d+)`)
	aboutMessages   = regexp.MustCompile(`refused|parked|dead letter|a job|the endpoint|unencrypted`)
)

// readWarnings notes the warnings in a relay's or worker's log, and returns the leases of jobs that it had lost.
func (c *chronicle) readWarnings(name string, log io.Reader) (losses []loss, err error) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m := logTime.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			return nil, fmt.Errorf("the log of %s: %w", name, err)
		}
		if job := logJob.FindStringSubmatch(lines.Text()); job != nil && logLoss.MatchString(m[2]) {
			losses = append(losses, loss{name, job[1], at})
		}
		if aboutMessages.MatchString(m[2]) {
			continue
		}
		concerned := routeNames("")
		if s := logSubscription.FindStringSubmatch(lines.Text()); s != nil {
			concerned = []string{strings.Trim(s[1], `"`)}
		}
		c.note("warning", name+": "+m[2], blast{Routes: concerned, Holder: name}, at, at)
	}
	return losses, lines.Err()
}
