package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
)

var errFlaky = errors.New("flaky")

// TestModel runs random histories of everything that can go wrong, in virtual time. They have
// temporary, long and permanent refusals, poisoned keys, and periods in which the sink refuses
// everything or is away. They also have rewinds, lost leases, database errors before and after the
// effect, and operators who retry and discard dead letters. The reference is the list of published
// messages. Every message is confirmed, or was a dead letter for a reason. The first confirmations
// of a key come in the order of the list. A message is settled as delivered only after it was
// confirmed. The fakes fail the test if two Sends ever hold a key, or if something is sent that
// has to wait behind a parked message or a dead letter.
func TestModel(t *testing.T) {
	from, to := uint64(0), uint64(150)
	if s := os.Getenv("PENSTOCK_SEED"); s != "" {
		var err error
		if from, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("PENSTOCK_SEED: %v", err)
		}
		to = from + 1
	}
	for seed := from; seed < to; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runModel(t, seed) })
		})
	}
}

func runModel(t *testing.T, seed uint64) {
	rng := seeded(t, seed)
	k := &sink{t: t, inOrder: rng.IntN(2) == 0}
	l := &outbox{sink: k}
	k.outbox = l
	f := newFaults(rng)
	f.install(l, k)

	hold := rng.IntN(3) == 0
	r, result := start(t, t.Context(), l, k, func(c *Options) {
		c.MaxInFlight = 1 + rng.IntN(200)
		c.MaxInFlightBytes = 1000 + rng.IntN(100_000)
		c.MaxBatch = 1 + rng.IntN(40)
		c.Senders = 1 + rng.IntN(6)
		c.Lease = 3 * time.Second
		c.RetryMin, c.RetryMax = 10*time.Millisecond, 500*time.Millisecond
		c.ParkAfter = 1 + rng.IntN(3)
		c.MaxAttempts = 6 + rng.IntN(3)
		c.SendTimeout = 2 * time.Second
		if hold {
			c.OnDead = OnDeadHold
		}
	})

	keys := 1 + rng.IntN(30)
	total := 200 + rng.IntN(800)
	for published := 0; published < total; {
		for range 1 + rng.IntN(60) {
			m := penstock.Message{Payload: make([]byte, rng.IntN(300))}
			if rng.IntN(5) > 0 {
				m.Key = fmt.Sprint("k", rng.IntN(keys))
			}
			l.publish(m)
			published++
		}
		pass(time.Duration(rng.IntN(200)) * time.Millisecond)
		if rng.IntN(15) == 0 {
			l.steal()
		}
		if rng.IntN(4) == 0 {
			operate(rng, l)
		}
		k.mu.Lock()
		f.mood = mood(max(rng.IntN(12)-9, 0))
		k.mu.Unlock()
	}
	f.stop(l, k)
	// Even the longest waits, one after another, must be enough for a history to settle; the clock is
	// virtual.
	parked := 0
	for range 3600 {
		if parked, _ = l.parkedMessages(); parked == 0 && l.cursor() == len(l.messages) {
			break
		}
		pass(time.Second)
		if hold {
			operate(rng, l)
		}
	}
	if l.cursor() != len(l.messages) || parked > 0 {
		t.Errorf("%d of %d messages are settled, %d parked", l.cursor(), len(l.messages), parked)
	}
	finish(t, r, result, l, k)
	checkOrder(t, l, k)
}

// operate retries or discards some dead letters.
func operate(rng *rand.Rand, l *outbox) {
	for _, seq := range l.deadSeqs() {
		switch l.mu.Lock(); rng.IntN(6) {
		case 0:
			l.retryDead(seq)
		case 1:
			l.discardDead(seq)
		}
		l.mu.Unlock()
	}
}

// mood is the state of the whole sink.
type mood int

const (
	good mood = iota
	away
	stubborn
)

// faults decides at random what fails. The mutex of the calling fake guards it.
type faults struct {
	db, broker *rand.Rand
	mood       mood
}

func newFaults(rng *rand.Rand) *faults {
	return &faults{
		db:     rand.New(rand.NewPCG(rng.Uint64(), 1)),
		broker: rand.New(rand.NewPCG(rng.Uint64(), 2)),
	}
}

func (f *faults) install(l *outbox, k *sink) {
	sometimes := func(n int) func() error {
		return func() error {
			if f.db.IntN(n) == 0 {
				return errFlaky
			}
			return nil
		}
	}
	l.openErr, l.fetchErr, l.settleErr, l.settleLie, l.renewErr = sometimes(3), sometimes(20), sometimes(4), sometimes(6), sometimes(3)
	cut := false // a connection that is cut loses the answer and the source's place
	lie := l.settleLie
	l.settleLie = func() error {
		err := lie()
		cut = cut || err != nil
		return err
	}
	l.rewind = func() bool {
		back := cut || f.db.IntN(40) == 0
		cut = false
		return back
	}
	l.maxFetch = func() int { return 1 + f.db.IntN(50) }
	wait := func(ctx context.Context) {
		l.mu.Lock()
		d := time.Duration(max(f.db.IntN(40)-20, 0)) * time.Millisecond
		l.mu.Unlock()
		sleep(ctx, nil, d)
	}
	l.fetchWait, l.settleWait = wait, wait
	k.before = func(ctx context.Context, _ []penstock.Message) {
		k.mu.Lock()
		wait := time.Duration(f.broker.IntN(30)) * time.Millisecond
		if f.broker.IntN(100) == 0 {
			wait = 3 * time.Second
		}
		k.mu.Unlock()
		sleep(ctx, nil, wait)
	}
	k.answer = func(m *penstock.Message) error {
		switch f.mood {
		case away:
			return penstock.Unavailable(errFlaky)
		case stubborn:
			return errFlaky
		}
		switch f.broker.IntN(40) {
		case 0, 1, 2:
			return errFlaky
		case 3:
			return penstock.RetryAfter(errFlaky, time.Duration(f.broker.IntN(2000))*time.Millisecond)
		case 5:
			return penstock.Unavailable(errFlaky)
		case 6:
			return penstock.RetryAfter(penstock.Unavailable(errFlaky), time.Duration(f.broker.IntN(2000))*time.Millisecond)
		}
		return poison(m)
	}
}

// poison is refused permanently.
func poison(m *penstock.Message) error {
	if m.Seq%67 == 1 {
		return penstock.Permanent(errFlaky)
	}
	return nil
}

func (f *faults) stop(l *outbox, k *sink) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	l.openErr, l.fetchErr, l.settleErr, l.settleLie, l.renewErr, l.rewind = nil, nil, nil, nil, nil, nil
	k.answer = poison
}
