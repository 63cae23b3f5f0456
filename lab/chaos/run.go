package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

// config of a run.
type config struct {
	binary   string // the penstock to test
	duration time.Duration
	seed     uint64
	rate     int // messages per second that all producers together aim at
	poison   bool
	store    string // postgres, mysql, sqlite or citus
	profile  string // of PostgreSQL
	engine   string // of the tables in MariaDB
	failover bool   // kill the primary once instead of everything all the time
	dir      string // for logs
	progress io.Writer
}

// producers is how many there are; each has two writers.
const producers = 4

// drainPatience bounds waiting, after everything is well again, for the relays to
// deliver the rest, while they make no progress.
const drainPatience = 90 * time.Second

// chaos is one run.
type chaos struct {
	config
	chronicle *chronicle
	journal   *journal
	rig       *rig
	observer  *observer
	operator  *operator
}

// run runs to the end and returns the findings. The error is the reason that kept it
// from finishing.
func run(ctx context.Context, cfg config, log io.Writer) (sum summary, v *verdict, err error) {
	c := &chaos{config: cfg, chronicle: newChronicle(log), journal: newJournal()}
	if c.rig, err = openRig(ctx, cfg, c.chronicle); err != nil {
		return sum, nil, err
	}
	defer func() { err = errors.Join(err, c.rig.close()) }()
	c.observer, c.operator = &observer{rig: c.rig, samples: map[string][]sample{}, running: map[string]int64{}}, newOperator(c.rig)

	consuming, stopConsuming := context.WithCancel(ctx)
	defer stopConsuming()
	consumed := make(chan error, 1)
	go func() { consumed <- c.rig.consumer.run(consuming) }()

	if err := c.storm(ctx); err != nil {
		return sum, nil, err
	}
	evidence, err := c.aftermath(ctx, consumed)
	if err != nil {
		return sum, nil, err
	}
	v = check(evidence)
	sum = summarize(cfg.seed, time.Since(c.chronicle.start), v, c.journal.count(unknown), c.chronicle.counted())
	tell(cfg.progress, evidence, v, c.chronicle)
	return sum, v, nil
}

// storm is the time in which producers write and things go wrong.
func (c *chaos) storm(ctx context.Context) error {
	if err := c.observer.awaitSubscriptions(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.duration)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { c.observer.run(ctx) })
	all.Go(func() { c.report(ctx) })
	var writing sync.WaitGroup
	c.startProducers(ctx, &writing)
	err := c.trouble(ctx)
	cancel()
	if proxy := c.rig.producers.proxy; proxy != nil {
		proxy.Resume()
	}
	writing.Wait()
	return err
}

// trouble continues until ctx ends.
func (c *chaos) trouble(ctx context.Context) error {
	if c.failover {
		return c.rig.failOver(ctx, c.duration, rand.New(rand.NewPCG(c.seed, 0)))
	}
	director := &director{chronicle: c.chronicle, newDeck: c.deck, seed: c.seed}
	return director.run(ctx)
}

// deck has the possible faults.
func (c *chaos) deck(random *rand.Rand) []fault {
	all := c.rig.faults(random)
	if c.poison {
		all = append(all, c.operator.retries())
	}
	return shuffled(append(all, c.operator.cancels()), random)
}

func (c *chaos) startProducers(ctx context.Context, all *sync.WaitGroup) {
	// A short transaction has three messages on average, and the late ones come on
	// top.
	pause := time.Second * 3 * producers / time.Duration(c.rate)
	for i := range 2 * producers {
		if i%2 == 1 && c.store == storeSQLite {
			continue // its one writer would hold all others up: nothing commits late there
		}
		w := &writer{name: fmt.Sprintf("p%d", i/2+1), url: c.rig.producers.url, dialect: c.rig.dialect, poison: c.poison, pause: pause, journal: c.journal,
			random: rand.New(rand.NewPCG(c.seed, uint64(100+i)))}
		w.crowds = i == 0
		if i%2 == 1 {
			w.name, w.late, w.pause = w.name+"-late", true, 200*time.Millisecond
		}
		all.Go(func() { w.run(ctx) })
	}
}

// report writes a line every ten seconds.
func (c *chaos) report(ctx context.Context) {
	for {
		sleep(ctx, 10*time.Second)
		if ctx.Err() != nil {
			return
		}
		c.progressLine("")
	}
}

func (c *chaos) progressLine(note string) {
	latest := c.observer.latest()
	var backlog, parked int64
	for _, s := range latest {
		backlog, parked = backlog+s.Backlog, parked+s.Parked
	}
	fmt.Fprintf(c.progress, "chaos %s: %d committed, %d in doubt, %d rolled back, %d read from RabbitMQ, backlog %d, parked %d, %d jobs left after %d runs, %d faults, %d takeovers%s\n",
		time.Since(c.chronicle.start).Round(time.Second), c.journal.count(committed), c.journal.count(unknown), c.journal.count(rolledBack),
		c.rig.consumer.read.Load(), backlog, parked, c.observer.jobs().left(), c.rig.handler.begun(), c.chronicle.faults(), c.observer.takeovers(), note)
}

// aftermath puts everything right, waits until the relays have nothing left to do
// and collects the evidence.
func (c *chaos) aftermath(ctx context.Context, consumed <-chan error) (*evidence, error) {
	c.progressLine("; the storm is over")
	healing := c.chronicle.note("healed", "", subscriptions(routeNames("")...), time.Now(), time.Time{})
	if err := c.rig.heal(ctx); err != nil {
		return nil, fmt.Errorf("putting everything right: %w", err)
	}
	healing.To = time.Now()
	err := c.drain(ctx)
	if err == nil {
		err = c.absolve(ctx)
	}
	if err != nil {
		fmt.Fprintf(c.progress, "chaos: %v\n", err) // the checker will name missing messages
	}
	e := &evidence{journal: c.journal.entries, arrivals: map[string][]arrival{}, dead: c.operator.dead(), runs: c.rig.handler.runs, cancelled: c.rig.handler.cancelled}
	if e.facts, err = c.rig.facts(ctx, c.rig.database); err != nil {
		return nil, fmt.Errorf("reading the business table: %w", err)
	}
	for _, p := range c.rig.processes {
		if err := errors.Join(p.alive(), p.Stop()); err != nil {
			return nil, err
		}
		log, err := os.Open(logOf(p))
		if err != nil {
			return nil, err
		}
		losses, err := c.chronicle.readWarnings(p.name, log)
		if err = errors.Join(err, log.Close()); err != nil {
			return nil, err
		}
		e.losses = append(e.losses, losses...)
	}
	if err := c.collect(ctx, e, consumed); err != nil {
		return nil, err
	}
	for name, s := range c.observer.latest() {
		c.chronicle.printf("%s has settled %d messages of %d that were committed", name, s.Settled, len(e.facts))
	}
	e.samples, e.running = c.observer.all()
	e.events, e.end = c.chronicle.all(), time.Now()
	return e, nil
}

// drain waits until every subscription has settled all there is, and every job is done.
func (c *chaos) drain(ctx context.Context) error {
	var left string
	for moved := time.Now(); time.Since(moved) < drainPatience; sleep(ctx, sampleEvery) {
		if err := c.observer.sample(ctx); err != nil {
			return err
		}
		now, done := "", true
		for _, r := range routes {
			s, there := c.observer.latest()[r.name]
			now += fmt.Sprintf("%s: backlog %d, parked %d; ", r.name, s.Backlog, s.Parked)
			done = done && there && s.Backlog == 0 && s.Parked == 0
		}
		jobs := c.observer.jobs()
		now += fmt.Sprintf("%s, after %d runs", jobs, c.rig.handler.begun())
		if done && jobs.left() == 0 {
			return nil
		}
		if now != left {
			left, moved = now, time.Now()
		}
	}
	return fmt.Errorf("not everything was delivered, and nothing moved for %s: %s", drainPatience, left)
}

// absolve makes the brokers take the messages that they refused, as an operator would, and
// sends every dead letter back.
func (c *chaos) absolve(ctx context.Context) error {
	c.rig.handler.absolve()
	if err := errors.Join(c.rig.consumer.route(topicNeverRabbit, true), c.rig.nats.route(ctx, true, true)); err != nil {
		return fmt.Errorf("routing what was refused: %w", err)
	}
	for _, name := range routeNames("") {
		n, err := c.operator.retry(ctx, name)
		if err != nil {
			return fmt.Errorf("retrying the dead letters of %s: %w", name, err)
		}
		c.chronicle.printf("%d dead letters of %s are retried", n, name)
	}
	return c.drain(ctx)
}

// collect reads arrivals and dead letters.
func (c *chaos) collect(ctx context.Context, e *evidence, consumed <-chan error) (err error) {
	if err := c.rig.consumer.finish(ctx); err != nil {
		return fmt.Errorf("ending the queue: %w", err)
	}
	select {
	case err := <-consumed:
		if err != nil {
			return fmt.Errorf("reading from RabbitMQ: %w", err)
		}
	case <-time.After(drainPatience):
		return errors.New("the end marker does not come out of the queue")
	}
	for _, r := range routes {
		if r.broker == "rabbitmq" {
			e.arrivals[r.name] = c.rig.consumer.arrivals
		} else if e.arrivals[r.name], err = c.rig.nats.read(ctx, r.name); err != nil {
			return fmt.Errorf("reading from NATS: %w", err)
		}
	}
	return nil
}
