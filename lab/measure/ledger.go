package measure

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/readback"
)

// ledger follows numbered messages: which have arrived, how often, and whether
// those of one key came in order. It takes first arrivals for the order:
// delivery is at least once.
type ledger struct {
	keys int              // as in load
	of   func(n int) bool // which numbers count; nil: all

	mu       sync.Mutex
	seen     *idSet
	last     map[int]int // the latest number of each key
	count    int         // different messages
	disorder int
	attempts int64 // beyond the first, of all arrivals

	want    int // the argument of expect; 0: nothing
	reached chan struct{}
	at      time.Time // when it was reached
	counted int       // and how many had come then

	resumed time.Time // the first arrival after mark
	before  int       // and how many had come when it was counted
}

func newLedger(keys int, of func(n int) bool) *ledger {
	return &ledger{keys: keys, of: of, seen: newIDSet(), last: map[int]int{}}
}

// arrive notes messages that a sink has confirmed, errs being its answer.
func (l *ledger) arrive(msgs []penstock.Message, errs []error) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range msgs {
		if errs != nil && errs[i] != nil {
			continue
		}
		if n, ok := number(msgs[i].Payload); ok && l.note(n) {
			l.attempts += int64(msgs[i].Attempt - 1)
		}
	}
	l.counts(now)
}

// arrived notes one payload that a consumer or an endpoint got.
func (l *ledger) arrived(payload []byte) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if n, ok := number(payload); ok && l.note(n) {
		l.counts(now)
	}
}

// arrivedAs notes a message whose number is not in the first digits.
func (l *ledger) arrivedAs(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(n)
}

// note reports whether the number counts; l.mu is held.
func (l *ledger) note(n int) bool {
	if l.of != nil && !l.of(n) {
		return false
	}
	if !l.seen.add(int64(n)) {
		return true
	}
	l.count++
	if l.keys > 0 {
		key := n % l.keys
		if last, ok := l.last[key]; ok && last > n {
			l.disorder++
		}
		l.last[key] = max(l.last[key], n)
	}
	return true
}

// counts compares the count with what is waited for; l.mu is held.
func (l *ledger) counts(now time.Time) {
	if l.resumed.IsZero() && l.count > l.before {
		l.resumed, l.before = now, l.count
	}
	if l.want > 0 && l.count >= l.want && l.at.IsZero() {
		l.at, l.counted = now, l.count
		close(l.reached)
	}
}

// expect sets how many different messages to wait for from now on, and has the
// next arrival noted as the first.
func (l *ledger) expect(want int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.want, l.reached, l.at = want, make(chan struct{}), time.Time{}
	l.resumed, l.before = time.Time{}, l.count
	l.counts(time.Now())
}

// total is how many different messages have arrived.
func (l *ledger) total() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// spent is how many attempts the arrivals had beyond their first.
func (l *ledger) spent() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempts
}

// await waits for the number of expect and returns when it was reached. It
// gives up when nothing has arrived for as long as patience.
func (l *ledger) await(ctx context.Context) (time.Time, error) {
	err := awaitProgress(ctx, l.reached, func() int64 { return int64(l.total()) }, func(n int64) error {
		return fmt.Errorf("nothing was delivered for %s: %d of %d messages have come", patience, n, l.want)
	})
	return l.at, err
}

// Check says what a ledger found when all should have arrived.
type Check struct {
	// By is the side that was asked: the broker's "consumer" afterwards, or the "sink" where it cannot
	// be read back.
	By         string `json:"by"`
	Lost       int    `json:"lost"`
	OutOfOrder int    `json:"out_of_order"`
	Duplicates int    `json:"duplicates"`
}

// check compares with how many should have arrived. Its error is of those lost or out of order.
func (l *ledger) check(by string, want int, when string) (c Check, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c = Check{By: by, Lost: want - l.count, OutOfOrder: l.disorder, Duplicates: int(l.seen.twice)}
	if c.Lost != 0 || c.OutOfOrder != 0 {
		err = &CheckError{Check: c, When: when}
	}
	return c, err
}

// CheckError: messages did not arrive as they must, so that what was measured
// means nothing.
type CheckError struct {
	Check Check
	When  string // which part of the run
}

func (e *CheckError) Error() string {
	return fmt.Sprintf("%s: %d messages lost, %d out of order: that must not happen, please report it", e.When, e.Check.Lost, e.Check.OutOfOrder)
}

// valve stands before a sink. While it is shut it refuses chosen messages with
// an error and lets the others through; what the sink confirms it enters into a
// ledger.
type valve struct {
	driver.Sink
	confirmed *ledger
	refuse    func(*penstock.Message) bool
	err       error
	shut      atomic.Bool
}

var _ driver.InOrderSink = (*valve)(nil)

// KeepsOrder is the sink's word: refuse chooses whole keys, so that the valve
// lets no message overtake a refused one of its key.
func (v *valve) KeepsOrder() bool {
	in, ok := v.Sink.(driver.InOrderSink)
	return ok && in.KeepsOrder()
}

// Send implements driver.Sink.
func (v *valve) Send(ctx context.Context, msgs []penstock.Message) []error {
	if v.shut.Load() {
		for i := range msgs {
			if v.refuse(&msgs[i]) {
				return v.sendSome(ctx, msgs)
			}
		}
	}
	errs := v.Sink.Send(ctx, msgs)
	v.confirmed.arrive(msgs, errs)
	return errs
}

// sendSome sends the messages that are not refused.
func (v *valve) sendSome(ctx context.Context, msgs []penstock.Message) []error {
	errs := make([]error, len(msgs))
	var pass []penstock.Message
	var from []int // where each of pass stands in msgs
	for i := range msgs {
		if v.refuse(&msgs[i]) {
			errs[i] = v.err
		} else {
			pass, from = append(pass, msgs[i]), append(from, i)
		}
	}
	if len(pass) == 0 {
		return errs
	}
	answer := v.Sink.Send(ctx, pass)
	v.confirmed.arrive(pass, answer)
	for i, err := range answer {
		errs[from[i]] = err
	}
	return errs
}

// check has the broker's consumer read everything that arrived, and compares it
// with the numbers below want that the valve's ledger counts. Where it cannot be read, the ledger
// itself has to do.
func (v *valve) check(ctx context.Context, q *queue, want int, when string) (Check, error) {
	if q.reader == nil {
		return v.confirmed.check("sink", want, when)
	}
	read := newLedger(v.confirmed.keys, v.confirmed.of)
	if err := q.readAll(ctx, func(a readback.Arrival) { read.arrived(a.Payload) }); err != nil {
		return Check{}, err
	}
	return read.check("consumer", want, when)
}
