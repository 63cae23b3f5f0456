package tables

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/retry"
)

func calling(ctx context.Context, jobs int, group string, leases ...int64) *call {
	return &call{ctx: ctx, leases: leases, claim: driver.Claim{Jobs: jobs, Group: group, Lease: time.Minute}}
}

func claimed(ids ...int64) (jobs []penstock.Job) {
	for _, id := range ids {
		jobs = append(jobs, penstock.Job{ID: id, Lease: 10 * id})
	}
	return jobs
}

func idsOf(jobs []penstock.Job) (ids []int64) {
	for _, job := range jobs {
		ids = append(ids, job.ID)
	}
	return ids
}

// Calls that come while one is under way share the next round trip, and each gets its own part of the answer.
func TestCallsThatWaitGoTogether(t *testing.T) {
	t.Parallel()
	var j joined
	first := calling(t.Context(), 1, "")
	if !j.enter(first) {
		t.Fatal("a call waits though none is under way")
	}
	one, two, ack := calling(t.Context(), 1, "", 7), calling(t.Context(), 3, ""), calling(t.Context(), 0, "", 9, 8)
	for _, c := range []*call{one, two, ack} {
		if j.enter(c) {
			t.Fatal("two calls are under way")
		}
	}
	calls := j.next()
	if !slices.Equal(calls, []*call{one, two, ack}) {
		t.Fatalf("%d of 3 calls go together", len(calls))
	}
	failed := errors.New("an error that comes with an answer")
	if left := j.answer(calls, []int64{7, 8, 9}, claimed(1, 2, 3), failed); len(left) > 0 {
		t.Errorf("jobs %d have no caller", idsOf(left))
	}
	for _, want := range []struct {
		call *call
		ids  []int64
		held []int64
	}{{one, []int64{1}, []int64{7}}, {two, []int64{2, 3}, nil}, {ack, nil, []int64{8, 9}}} {
		j.await(want.call)
		if got := idsOf(want.call.jobs); !slices.Equal(got, want.ids) || !slices.Equal(want.call.held, want.held) || want.call.err != failed {
			t.Errorf("a call got the jobs %d, the leases %d and the error %v, expected %d, %d and %v", got, want.call.held, want.call.err, want.ids, want.held, failed)
		}
	}
	if calls := j.next(); len(calls) > 0 || !j.enter(first) {
		t.Error("a call waits though none is under way")
	}
}

// A claim of several calls may find fewer jobs than they want while there are more. Calls that get none are answered by a later claim, which has their
// leases no more, and without jobs only by one that found none.
func TestCallsWithoutAJobAskAgain(t *testing.T) {
	t.Parallel()
	var j joined
	j.enter(calling(t.Context(), 1, ""))
	one, two, three := calling(t.Context(), 1, "", 7), calling(t.Context(), 1, "", 8), calling(t.Context(), 1, "")
	for _, c := range []*call{one, two, three} {
		j.enter(c)
	}
	j.answer(j.next(), []int64{7, 8}, claimed(1), nil)
	if j.await(one); !slices.Equal(idsOf(one.jobs), []int64{1}) {
		t.Fatalf("the first call got %d", idsOf(one.jobs))
	}
	four := calling(t.Context(), 1, "")
	j.enter(four)
	calls := j.next()
	if !slices.Equal(calls, []*call{two, three, four}) || len(two.leases) > 0 {
		t.Fatalf("%d calls go together, the first with %d leases, want three and none", len(calls), len(two.leases))
	}
	j.answer(calls, nil, claimed(2), nil)
	if j.await(two); !slices.Equal(idsOf(two.jobs), []int64{2}) || !slices.Equal(two.held, []int64{8}) {
		t.Errorf("the second call got %d, and ended %d", idsOf(two.jobs), two.held)
	}
	j.answer(j.next(), nil, nil, nil)
	for _, c := range []*call{three, four} {
		if j.await(c); len(c.jobs) > 0 || c.err != nil {
			t.Errorf("a claim that found nothing gave %d, %v", idsOf(c.jobs), c.err)
		}
	}
	if calls := j.next(); len(calls) > 0 {
		t.Errorf("%d calls wait, though a claim found nothing", len(calls))
	}
}

// A claim that goes once more and fails has not found that there is no job. One whose leases have ended says so all the same.
func TestAClaimThatFailsOnceMore(t *testing.T) {
	t.Parallel()
	var j joined
	j.enter(calling(t.Context(), 1, ""))
	first, acks, claims := calling(t.Context(), 1, ""), calling(t.Context(), 1, "", 7), calling(t.Context(), 1, "")
	for _, c := range []*call{first, acks, claims} {
		j.enter(c)
	}
	j.answer(j.next(), []int64{7}, claimed(1), nil)
	failed := errors.New("the second round trip failed")
	j.answer(j.next(), nil, nil, failed)
	if j.await(acks); acks.err != nil || !slices.Equal(acks.held, []int64{7}) {
		t.Errorf("a call whose leases have ended gave %d, %v", acks.held, acks.err)
	}
	if j.await(claims); claims.err != failed {
		t.Errorf("a claim that failed gave %d, %v", idsOf(claims.jobs), claims.err)
	}
}

// Calls that have waited long share a second round trip, and there is no third one.
func TestASecondRoundTrip(t *testing.T) {
	t.Parallel()
	var j joined
	if j.enter(calling(t.Context(), 1, "")); len(j.second()) > 0 {
		t.Fatal("a round trip without calls")
	}
	one, two, three := calling(t.Context(), 1, ""), calling(t.Context(), 1, ""), calling(t.Context(), 1, "")
	j.enter(one)
	j.enter(two)
	if calls := j.second(); !slices.Equal(calls, []*call{one, two}) {
		t.Fatalf("%d calls go together, expected 2", len(calls))
	}
	if j.enter(three) || len(j.second()) > 0 {
		t.Fatal("three round trips are under way")
	}
	if calls := j.next(); !slices.Equal(calls, []*call{three}) {
		t.Errorf("%d calls follow the first that returns, expected 1", len(calls))
	}
	if j.next(); j.under != 1 {
		t.Errorf("%d round trips are under way, expected 1", j.under)
	}
	if j.next(); !j.enter(one) {
		t.Error("a call waits though none is under way")
	}
}

// The callers of a round trip share the next one with those that waited meanwhile, once all have called. The machine's speed does not
// decide that: time stands still here until nothing else can happen.
func TestCallersComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pause = 100 * time.Microsecond
		var j joined
		for range 3 {
			j.enter(calling(t.Context(), 1, ""))
		}
		began := time.Now()
		answered := j.next() // two; the first's caller calls again meanwhile
		j.enter(calling(t.Context(), 1, ""))
		for range answered {
			go func() {
				time.Sleep(pause)
				j.enter(calling(t.Context(), 1, ""))
			}()
		}
		j.ended(2, 2, 9*pause)
		j.callers = 3
		j.gather(9*pause, true)
		if calls := j.next(); len(calls) != 3 || time.Since(began) != pause {
			t.Errorf("%d calls go together after %v, expected 3 after %v", len(calls), time.Since(began), pause)
		}
		for _, some := range []struct {
			name         string
			took, waited time.Duration
			asked, found int
			sideBySide   bool
		}{
			{"short, so nothing is waited for", short - 1, 0, 3, 3, true},
			{"of claims that found too few jobs, so the callers pause", 8 * pause, 0, 3, 2, true},
			{"of acks, and the claim before found too few", 8 * pause, 0, 0, 0, true},
			{"of acks, and the claim before found enough", 8 * pause, pause, 1, 1, true},
			{"after one that was waited for in vain", 8 * pause, 0, 3, 3, true},
			{"long, so a second one begins", long + 3*longer, 0, 3, 3, true},
		} {
			began := time.Now()
			j.ended(some.asked, some.found, some.took)
			j.callers = 3
			if j.gather(some.took, some.sideBySide); time.Since(began) != some.waited {
				t.Errorf("the round trip was %s: the next one begins after %v, expected %v", some.name, time.Since(began), some.waited)
			}
			for range 3 { // late: nothing waits for them
				j.enter(calling(t.Context(), 1, ""))
			}
			if calls := j.next(); len(calls) != 3 {
				t.Errorf("%d calls go, expected 3", len(calls))
			}
		}
		for range inVain {
			j.gather(8*pause, true)
		}
		began = time.Now()
		if j.gather(time.Hour, false); time.Since(began) != mostGathering {
			t.Errorf("where claims take turns the next one begins after %v, expected %v", time.Since(began), mostGathering)
		}
		if j.next(); j.under != 0 {
			t.Errorf("%d round trips are under way, expected none", j.under)
		}
		if j.enter(calling(t.Context(), 1, "")); j.under != 1 {
			t.Error("a call waits though none is under way")
		}
		j.alone, j.callers = 0, 1
		began = time.Now()
		if j.gather(time.Hour, false); time.Since(began) > 0 {
			t.Error("one caller waits for another, though there is none")
		}
	})
}

// Of acks and claims that wait while there are jobs enough, the acks go first, so that the next claim is for all. Claims wait for one such round trip only, and for
// none that is long.
func TestAcksGoFirst(t *testing.T) {
	t.Parallel()
	var j joined
	j.enter(calling(t.Context(), 1, ""))
	wait := func() (claim, ack *call) {
		claim, ack = calling(t.Context(), 1, ""), calling(t.Context(), 0, "", 7)
		j.enter(claim)
		j.enter(ack)
		return claim, ack
	}
	claim, ack := wait()
	if calls := j.next(); !slices.Equal(calls, []*call{claim, ack}) {
		t.Errorf("%d calls go together though there may be no job, expected 2", len(calls))
	}
	j.ended(1, 1, time.Millisecond)
	claim, ack = wait()
	if calls := j.next(); !slices.Equal(calls, []*call{ack}) {
		t.Errorf("%d calls go first, expected the ack", len(calls))
	}
	later, again := wait()
	if calls := j.next(); !slices.Equal(calls, []*call{claim, later, again}) {
		t.Errorf("%d calls go then, expected all 3", len(calls))
	}
	j.ended(1, 1, long+time.Duration(j.jobs)*longer)
	claim, ack = wait()
	if calls := j.next(); !slices.Equal(calls, []*call{claim, ack}) {
		t.Errorf("%d calls go together though the database is far away, expected 2", len(calls))
	}
}

// A round trip with many jobs takes longer, which does not make the database far away.
func TestManyJobsTakeLonger(t *testing.T) {
	t.Parallel()
	var j joined
	j.enter(calling(t.Context(), 500, ""))
	if got := j.patience(); got != long+500*longer {
		t.Errorf("a call waits %v for 500 jobs", got)
	}
	j.enter(calling(t.Context(), 300, "", 7, 8))
	j.next()
	j.second() // nothing waits
	if got := j.patience(); got != long+302*longer {
		t.Errorf("a call waits %v for 300 jobs and two ends", got)
	}
	for _, c := range []struct {
		took time.Duration
		far  bool
	}{{long + 302*longer - 1, false}, {long + 302*longer, true}} {
		if j.ended(300, 300, c.took); j.far != c.far || c.far && j.patience() != sooner {
			t.Errorf("it took %v: far %v, and the next call waits %v", c.took, j.far, j.patience())
		}
	}
}

// An ack whose caller has gone does not go first: it goes nowhere, and a claim that let it pass would wait for ever.
func TestAnAckThatIsGoneDoesNotGoFirst(t *testing.T) {
	t.Parallel()
	var j joined
	j.enter(calling(t.Context(), 1, ""))
	j.ended(1, 1, time.Millisecond)
	leaves, leave := context.WithCancel(t.Context())
	claim, ack := calling(t.Context(), 1, ""), calling(leaves, 0, "", 7)
	j.enter(claim)
	j.enter(ack)
	leave()
	j.await(ack)
	if calls := j.next(); !slices.Equal(calls, []*call{claim}) {
		t.Errorf("%d calls go, expected the claim", len(calls))
	}
}

// A lease that two calls end is one call's.
func TestALeaseIsHeldOnce(t *testing.T) {
	t.Parallel()
	var j joined
	j.enter(calling(t.Context(), 1, ""))
	one, two := calling(t.Context(), 0, "", 5), calling(t.Context(), 0, "", 5)
	j.enter(one)
	j.enter(two)
	j.answer(j.next(), []int64{5}, nil, nil)
	if len(one.held)+len(two.held) != 1 {
		t.Errorf("the lease was held by %d calls", len(one.held)+len(two.held))
	}
}

// Claims of different groups do not go together, nor do more jobs or leases than one round trip carries.
func TestWhatDoesNotGoTogether(t *testing.T) {
	t.Parallel()
	large := make([]int64, mostJoinedLeases)
	for name, pair := range map[string][2]*call{
		"groups": {calling(t.Context(), 1, "a"), calling(t.Context(), 1, "b")},
		"jobs":   {calling(t.Context(), mostJoinedJobs, ""), calling(t.Context(), 1, "")},
		"leases": {calling(t.Context(), 0, "", large...), calling(t.Context(), 0, "", 1)},
	} {
		var j joined
		j.enter(calling(t.Context(), 1, ""))
		j.enter(pair[0])
		j.enter(pair[1])
		for _, want := range pair {
			if calls := j.next(); !slices.Equal(calls, []*call{want}) {
				t.Errorf("%s: %d calls go together, expected one after the other", name, len(calls))
			}
		}
	}
}

// The jobs of a caller that has gone are left, and the context of the round trip lasts as long as one caller waits.
func TestCallersThatGo(t *testing.T) {
	t.Parallel()
	var j joined
	j.enter(calling(t.Context(), 1, ""))
	leaves, leave := context.WithCancel(t.Context())
	goes, stays := calling(leaves, 2, ""), calling(t.Context(), 1, "")
	j.enter(goes)
	j.enter(stays)
	calls := j.next()
	ctx, end := whileAny(calls)
	defer end()
	leave()
	if j.await(goes); !errors.Is(goes.err, context.Canceled) {
		t.Errorf("a call whose context has ended returned %v", goes.err)
	}
	if ctx.Err() != nil {
		t.Error("the round trip ended with one of two callers")
	}
	left := j.answer(calls, nil, claimed(1, 2, 3), nil)
	if j.await(stays); !slices.Equal(idsOf(stays.jobs), []int64{1}) || !slices.Equal(idsOf(left), []int64{2, 3}) {
		t.Errorf("the caller that stayed has the jobs %d, and %d are left", idsOf(stays.jobs), idsOf(left))
	}

	gone, cancel := context.WithCancel(t.Context())
	ctx, end = whileAny([]*call{calling(gone, 1, ""), calling(gone, 1, "")})
	defer end()
	cancel()
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Error("the round trip does not end with the last of its callers")
	}
}

// panicking is a database whose driver panics while it is broken.
type panicking struct {
	QueueDB
	broken bool
}

func (*panicking) Ready(context.Context) error { return nil }
func (*panicking) Missing(error) bool          { return false }
func (*panicking) Looks() Options              { return Options{Ready: true} }

func (p *panicking) Send(context.Context, func(b *Batch)) error {
	if p.broken {
		panic("broken")
	}
	return nil
}

func (p *panicking) Round(_ context.Context, _ *QueueRow, _ driver.Claim, r *Round, _ []int64, _ *Batch) ([]int64, error) {
	if p.broken {
		panic("broken")
	}
	r.There = true
	return nil, nil
}

// A panic in a call, which its caller recovers from, has no later call wait.
func TestACallThatPanics(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ctx context.Context, q Queue) error{
		"Claim": func(ctx context.Context, q Queue) error {
			_, err := q.Claim(ctx, driver.Claim{Jobs: 1, Lease: time.Minute})
			return err
		},
		"Ack": func(ctx context.Context, q Queue) error {
			_, err := q.Ack(ctx, 1)
			return err
		},
	} {
		db := &panicking{broken: true}
		s := NewQueues(db, &retry.Counter{}, nil)
		s.rows.Store("jobs", &QueueRow{Name: "jobs", Seen: NewSeen(false)})
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			_ = call(t.Context(), s.Queue("jobs"))
		}()
		db.broken = false
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := call(ctx, s.Queue("jobs")); err != nil {
			t.Errorf("%s after one that panicked: %v", name, err)
		}
	}
}
