package measure

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/penstock/penstock"
)

// ledger follows numbered messages: which have arrived, how often, and whether
// those of one key came in order. It takes first arrivals for the order:
// delivery is at least once.
type ledger struct {
	keys int              // as in load
	of   func(n int) bool // which numbers count; nil: all

	mu         sync.Mutex
	seen       []uint64    // a bit per number
	last       map[int]int // the latest number of each key
	count      int         // different messages
	duplicates int
	disorder   int
	attempts   int64 // beyond the first, of all arrivals

	want    int // the argument of expect; 0: nothing
	reached chan struct{}
	at      time.Time // when it was reached
	counted int       // and how many had come then

	resumed time.Time // the first arrival after mark
	before  int       // and how many had come when it was counted
}

func newLedger(keys int, of func(n int) bool) *ledger {
	return &ledger{keys: keys, of: of, last: map[int]int{}}
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
	for n/64 >= len(l.seen) {
		l.seen = append(l.seen, 0)
	}
	bit := uint64(1) << (n % 64)
	if l.seen[n/64]&bit != 0 {
		l.duplicates++
		return true
	}
	l.seen[n/64] |= bit
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
	c = Check{By: by, Lost: want - l.count, OutOfOrder: l.disorder, Duplicates: l.duplicates}
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
