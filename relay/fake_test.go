package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// outbox is the fake database of one outbox: messages in order, a durable cursor
// and a lease. Sources read it.
type outbox struct {
	mu       sync.Mutex
	messages []penstock.Message
	settled  int            // the durable cursor: index of the first message not settled
	ahead    map[int64]bool // Seqs of messages behind it that are
	settles  []time.Time
	parts    int // of settled batches
	holder   *fakeSource
	opens    int // calls, including failed ones
	openings int
	fetches  int
	fetched  int // messages returned, with repetitions
	reports  []sinkReport
	sink     *sink // if set, it must have confirmed messages that are settled as delivered
	fakePark
	maintained int
	wrap       func(*fakeSource) driver.Source // nil: it is returned as it is

	// faults, called under mu; nil means none
	openErr     func() error
	maintainErr func() error
	fetchErr    func() error
	settleErr   func() error
	settleLie   func() error // after it took effect
	renewErr    func() error
	rewind      func() bool
	maxFetch    func() int

	// Called without mu, before the answer.
	renewWait, settleWait func(ctx context.Context)
	// Called without mu, after it was decided which messages are BehindParked, and before it is
	// decided which are returned.
	fetchWait func(ctx context.Context)
}

func (l *outbox) publish(msgs ...penstock.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range msgs {
		m.Seq = int64(len(l.messages) + 1)
		m.ID = fmt.Sprint(m.Seq)
		m.Attempt = 1
		l.messages = append(l.messages, m)
	}
}

// publishKeys publishes n messages, the ith with key keys[i%len(keys)].
func (l *outbox) publishKeys(n int, keys ...string) {
	for i := range n {
		l.publish(penstock.Message{Key: keys[i%len(keys)], Topic: "t"})
	}
}

// read returns one of the counters while the relay runs.
func (l *outbox) read(counter *int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *counter
}

func (l *outbox) cursor() int { return l.read(&l.settled) }

// steal gives the lease to a holder that the relay does not know.
func (l *outbox) steal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holder = nil
}

func (l *outbox) Subscribe(context.Context, driver.Subscribe) (driver.Source, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opens++
	if err := fault(l.openErr); err != nil {
		return nil, err
	}
	l.openings++
	l.holder = &fakeSource{log: l, next: l.settled, batches: map[uint64]fakeBatch{}}
	l.handBack()
	if l.wrap != nil {
		return l.wrap(l.holder), nil
	}
	return l.holder, nil
}

// Maintain implements Store.
func (l *outbox) Maintain(context.Context, string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maintained++
	return fault(l.maintainErr)
}

func fault(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

type sinkReport struct {
	down time.Time
	why  string
}

// ReportSink fails the first time.
func (s *fakeSource) ReportSink(_ context.Context, down time.Time, why string) error {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.log.reports = append(s.log.reports, sinkReport{down, why})
	if len(s.log.reports) == 1 {
		return errFlaky
	}
	return nil
}

type fakeSource struct {
	log     *outbox
	next    int
	number  uint64
	batches map[uint64]fakeBatch // not settled
	closed  bool
	misuse  error
	attempt uint64 // the last call of Settle that took effect
	told    []driver.Settled

	fromPark bool // the last Fetch asked the park first
}

func (s *fakeSource) check() error {
	if s.closed {
		s.misuse = errors.New("used after Close")
		return penstock.ErrClosed
	}
	if s.log.holder != s {
		return fmt.Errorf("fake: %w", penstock.ErrFenced)
	}
	return nil
}

func (s *fakeSource) Fetch(ctx context.Context, limit driver.Limit) (driver.Batch, error) {
	s.log.mu.Lock()
	behind := s.log.keys
	if s.log.fetchWait != nil {
		behind = maps.Clone(behind)
		s.log.mu.Unlock()
		s.log.fetchWait(ctx)
		s.log.mu.Lock()
	}
	defer s.log.mu.Unlock()
	if err := s.check(); err != nil {
		return driver.Batch{}, err
	}
	s.log.fetches++
	if err := fault(s.log.fetchErr); err != nil {
		return driver.Batch{}, err
	}
	var b driver.Batch
	if s.log.rewind != nil && s.log.rewind() {
		b.Rewound = true
		s.next = s.log.settled
		clear(s.batches)
		s.log.handBack()
	}
	if s.log.maxFetch != nil {
		limit.Messages = min(limit.Messages, s.log.maxFetch())
	}
	// From the park and from the stream in turn, if both have something.
	var from fakeBatch
	ok := false
	for s.next < len(s.log.messages) && s.log.ahead[s.log.messages[s.next].Seq] {
		s.next++
	}
	if s.fromPark = !s.fromPark; s.fromPark || s.next == len(s.log.messages) {
		from, ok = s.log.fetchParked(&b, limit)
	}
	if !ok {
		from = s.fetchStream(&b, limit, behind)
	}
	s.log.fetched += len(b.Messages)
	b.More = s.next < len(s.log.messages) || len(from.parked) > 0
	if len(b.Messages) > 0 {
		s.number++
		b.Number = s.number
		s.batches[b.Number] = from
	}
	return b, nil
}

func (s *fakeSource) fetchStream(b *driver.Batch, limit driver.Limit, behind map[string]*fakeParkedKey) fakeBatch {
	bytes := 0
	for len(b.Messages) < limit.Messages && s.next < len(s.log.messages) && (bytes < limit.Bytes || len(b.Messages) == 0) {
		m := s.log.messages[s.next]
		if s.log.ahead[m.Seq] {
			s.next++
			continue
		}
		bytes += m.Size()
		b.Messages = append(b.Messages, m)
		if behind[m.Key] != nil {
			if b.KeyOrder == nil {
				b.KeyOrder = make([]driver.KeyOrder, limit.Messages)
			}
			b.KeyOrder[len(b.Messages)-1] = driver.BehindParked
		}
		s.next++
	}
	if b.KeyOrder != nil {
		b.KeyOrder = b.KeyOrder[:len(b.Messages)]
	}
	return fakeBatch{}
}

func (s *fakeSource) Settle(ctx context.Context, attempt uint64, settled ...driver.Settled) error {
	if s.log.settleWait != nil {
		s.log.settleWait(ctx)
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	if err := fault(s.log.settleErr); err != nil {
		return err
	}
	if attempt <= s.attempt {
		if attempt < s.attempt || !reflect.DeepEqual(settled, s.told) {
			s.misuse = fmt.Errorf("attempt %d after %d, or with other news", attempt, s.attempt)
		}
		return s.misuse // it took effect
	}
	last := uint64(0)
	for _, t := range settled {
		from, ok := s.batches[t.Batch.Number]
		if t.Batch.Number <= last {
			s.misuse = fmt.Errorf("batch %d settled out of turn", t.Batch.Number)
			return s.misuse
		}
		last = t.Batch.Number
		if !ok {
			continue // nothing is new, or fetched before a rewind
		}
		if err := s.log.settle(t, &from); err != nil {
			s.misuse = err
			return err
		}
		s.batches[t.Batch.Number] = from
		if len(from.settled) == len(t.Batch.Messages) {
			delete(s.batches, t.Batch.Number)
		} else {
			s.log.parts++
		}
		for number := range s.batches {
			if number <= last && !t.Open {
				s.misuse = fmt.Errorf("the cursor is to pass batch %d, and not all of %d is settled", last, number)
			}
		}
	}
	s.attempt, s.told = attempt, slices.Clone(settled)
	s.log.settles = append(s.log.settles, time.Now())
	return fault(s.log.settleLie)
}

func (s *fakeSource) Renew(ctx context.Context) error {
	if s.log.renewWait != nil {
		s.log.renewWait(ctx)
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	return fault(s.log.renewErr)
}

func (s *fakeSource) Close(ctx context.Context) error {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.closed = true
	if s.log.holder == s {
		s.log.holder = nil
	}
	return s.misuse
}

// newFlag is a flag that a test changes while the fakes run.
func newFlag(v bool) *atomic.Bool {
	f := new(atomic.Bool)
	f.Store(v)
	return f
}

// pass lets virtual time pass and waits for everything that happens until then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// quiet is a logger for tests; PENSTOCK_TEST_LOG=1 makes it print.
func quiet() *slog.Logger {
	if os.Getenv("PENSTOCK_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return slog.New(slog.DiscardHandler)
}

// start runs a relay and returns it with the channel of Run's result.
func start(t testing.TB, ctx context.Context, l *outbox, k driver.Sink, change func(*Options)) (*Relay, <-chan error) {
	t.Helper()
	opts := Options{Logger: quiet(), Limits: Limits{MaxInFlight: 64, MaxBatch: 8, Senders: 4}}
	if change != nil {
		change(&opts)
	}
	r, err := New(l, "orders", "test", k, opts)
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { result <- r.Run(ctx) }()
	return r, result
}

// finish drains the relay and checks what holds in every test: no error, and only confirmed
// messages are settled.
func finish(t testing.TB, r *Relay, result <-chan error, l *outbox, k *sink) {
	t.Helper()
	r.Drain()
	if err := <-result; err != nil {
		t.Fatalf("Run: %v", err)
	}
	checkSettled(t, l, k)
}

func checkSettled(t testing.TB, l *outbox, k *sink) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	outOfBand := l.outOfBand()
	for _, m := range l.messages[:l.settled] {
		if !k.confirmedOnce(m.Seq) && !outOfBand[m.Seq] {
			t.Fatalf("message %d is settled, and neither confirmed nor parked nor dead", m.Seq)
		}
	}
	if l.holder != nil {
		t.Error("the lease was not given back")
	}
}

// checkOrder requires that every message was confirmed, per key in order, except for those that
// were a dead letter at some time.
func checkOrder(t testing.TB, l *outbox, k *sink) {
	t.Helper()
	alive := func(seqs []int64) []int64 {
		return slices.DeleteFunc(seqs, func(seq int64) bool { return l.died[seq] })
	}
	want := map[string][]int64{}
	for _, m := range l.messages {
		want[m.Key] = append(want[m.Key], m.Seq)
	}
	got := k.firsts()
	for key, seqs := range want {
		had, seqs := alive(got[key]), alive(seqs)
		if key == "" {
			slices.Sort(had)
		}
		if !slices.Equal(had, seqs) {
			t.Errorf("key %q: first deliveries %v, want %v", key, had, seqs)
		}
	}
}

// seeded returns a random generator whose seed is printed if the test fails.
func seeded(t testing.TB, seed uint64) *rand.Rand {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("PENSTOCK_SEED=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}
