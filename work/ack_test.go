package work_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/work"
)

// carrying is a fakeQueue that is an AckClaimer.
type carrying struct{ *fakeQueue }

func (q carrying) AckClaim(ctx context.Context, acks []int64, c driver.Claim) (acked []int64, jobs []penstock.Job, err error) {
	call := "ackclaim"
	if len(acks) == 0 {
		call = "together"
	}
	end, err := q.call(ctx, call)
	if err != nil {
		return nil, nil, err
	}
	acked = q.held(acks, func(j penstock.Job) {
		delete(q.leases, j.Lease)
		q.done = append(q.done, string(j.Payload))
	})
	end()
	jobs, err = q.Claim(ctx, c)
	return acked, jobs, err
}

// trickle adds a job every millisecond.
func (q *fakeQueue) trickle(jobs int) {
	for i := range jobs {
		time.Sleep(time.Millisecond)
		q.mu.Lock()
		q.waiting = append(q.waiting, penstock.Job{ID: int64(i + 1), Payload: []byte(fmt.Sprint("j", i))})
		q.mu.Unlock()
	}
}

// While jobs keep coming, claims carry ended jobs, some of them at a time. A long pause does not
// delay them.
func TestWorkAcksWithClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(0)
		seen, stop := begin(t, carrying{q}, nothing, work.Options{})
		q.trickle(2000)
		time.Sleep(7 * time.Millisecond)
		q.mu.Lock()
		if len(q.done) != 2000 || q.calls["ackclaim"] < 150 || q.calls["ackclaim"] > 300 || q.calls["ack"] > 0 {
			t.Errorf("%d of 2000 jobs are done, %d claims carried them, want 150 to 300, and %d calls of Ack, want none", len(q.done), q.calls["ackclaim"], q.calls["ack"])
		}
		q.mu.Unlock()
		if err := stop(); err != nil || seen.count(work.Done) != 2000 {
			t.Errorf("the observer saw %v, error %v", seen.ends, err)
		}
	})
}

// An ended job goes with the next claim if it has a key, because a job of that key may wait for
// it. The same holds after a claim without jobs, because a queue with a limit may wait for the
// ack.
func TestWorkCarriesAtOnce(t *testing.T) {
	for name, last := range map[string]penstock.Job{"a key": {ID: 9, Key: "k", Payload: []byte("last")}, "nothing claimed": {ID: 9, Payload: []byte("last")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newFakeQueue(0)
				q.waiting = []penstock.Job{last}
				_, stop := begin(t, carrying{q}, nothing, work.Options{AckEvery: time.Hour, PollMin: time.Millisecond, PollMax: time.Millisecond})
				want := 1500 * time.Microsecond // the claim after the one that brought it
				if last.Key == "" {
					want += time.Millisecond // that brought nothing
				}
				time.Sleep(want)
				q.mu.Lock()
				if len(q.done) != 1 || q.calls["ackclaim"] != 1 {
					t.Errorf("%d jobs are done, with %d claims that carried them, want 1 and 1", len(q.done), q.calls["ackclaim"])
				}
				q.mu.Unlock()
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Ended jobs are written without a claim after AckEvery if no claim comes before.
func TestWorkAcksAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(2)
		_, stop := begin(t, carrying{q}, func(context.Context, penstock.Job) error { time.Sleep(500 * time.Millisecond); return nil },
			work.Options{AckEvery: 3 * time.Millisecond, PollMin: time.Second, PollMax: time.Second})
		time.Sleep(502 * time.Millisecond)
		for _, want := range []int{0, 2} { // before AckEvery has passed and after it, and the next claim is at 1 s
			q.mu.Lock()
			if len(q.done) != want || q.calls["ack"] != want/2 || q.calls["ackclaim"] > 0 {
				t.Errorf("%d jobs are done with %d calls of Ack, %d of AckClaim, want %d, %d and none", len(q.done), q.calls["ack"], q.calls["ackclaim"], want, want/2)
			}
			q.mu.Unlock()
			time.Sleep(2 * time.Millisecond)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Ended jobs are written although claims fail. They are counted once, although a call that failed
// had written them.
func TestWorkClaimsFailWithAcks(t *testing.T) {
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprint("written ", written), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newFakeQueue(10)
				claims := losing{carrying{q}, written}
				seen, stop := begin(t, claims, nothing, work.Options{})
				time.Sleep(time.Second)
				q.mu.Lock()
				if len(q.done) != 10 || q.calls["ack"] == 0 {
					t.Errorf("%d of 10 jobs are done, with %d calls of Ack", len(q.done), q.calls["ack"])
				}
				q.mu.Unlock()
				if err := stop(); err != nil {
					t.Error(err)
				}
				done, lost := seen.count(work.Done), seen.count(work.Lost)
				if !written && done != 10 || written && lost != 10 || done+lost != 10 {
					t.Errorf("the observer saw %v, want each job once", seen.ends)
				}
			})
		})
	}
}

// After a claim that failed with the acks it carried, the next one carries nothing, although jobs
// end all the time. Claims continue, and nothing is lost or counted twice.
func TestWorkClaimsAloneAfterFailure(t *testing.T) {
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprint("written ", written), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const jobs = 300
				q := newFakeQueue(jobs)
				var calls recorder
				claims := recording{losing{carrying{q}, written}, &calls}
				turn := 0
				seen, stop := begin(t, claims, func(context.Context, penstock.Job) error {
					q.mu.Lock()
					turn++
					pause := time.Duration(turn%10+1) * 7 * time.Millisecond
					q.mu.Unlock()
					time.Sleep(pause) // so there is an ended job at all times
					return nil
				}, work.Options{Batch: 10, Claims: 1, AckEvery: 200 * time.Millisecond})
				time.Sleep(time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				failed := 0
				for i, name := range calls.names {
					if name == "ackclaim" {
						failed++
						if i > 0 && calls.names[i-1] == "ackclaim" {
							t.Fatalf("call %d carries what is done, right after one that failed", i)
						}
					}
				}
				if failed < 3 {
					t.Errorf("%d claims failed with what they carried, want some", failed)
				}
				done, lost := seen.count(work.Done), seen.count(work.Lost)
				if len(q.done) != jobs || done+lost != jobs || !written && lost > 0 || written && lost == 0 {
					t.Errorf("%d of %d jobs are done, and the observer saw %v: want each job once", len(q.done), jobs, seen.ends)
				}
			})
		})
	}
}

// Claims return jobs that end many at a time, until a handler ends one itself.
func TestWorkClaimsTogether(t *testing.T) {
	for name, c := range map[string]struct {
		handler work.Handler
		alone   bool
	}{
		"handlers that return":      {nothing, false},
		"handlers that end the job": {func(context.Context, penstock.Job) error { return work.ErrSettled }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newFakeQueue(100)
				_, stop := begin(t, carrying{q}, c.handler, work.Options{Batch: 10, Concurrency: 1})
				time.Sleep(time.Second)
				if err := stop(); err != nil {
					t.Error(err)
				}
				together := q.calls["together"] + q.calls["ackclaim"] // each ends in a call of Claim
				if alone := q.calls["claim"] - together; together == 0 || alone > 0 != c.alone {
					t.Errorf("%d claims of jobs that are ended many at a time, and %d others", together, alone)
				}
			})
		})
	}
}

// recorder has the names of calls, in order.
type recorder struct{ names []string }

// recording notes the claims, which come one after another.
type recording struct {
	losing
	calls *recorder
}

func (q recording) Claim(ctx context.Context, c driver.Claim) ([]penstock.Job, error) {
	q.calls.names = append(q.calls.names, "claim")
	return q.losing.Claim(ctx, c)
}

func (q recording) AckClaim(ctx context.Context, acks []int64, c driver.Claim) ([]int64, []penstock.Job, error) {
	name := "ackclaim"
	if len(acks) == 0 {
		name = "claim"
	}
	q.calls.names = append(q.calls.names, name)
	return q.losing.AckClaim(ctx, acks, c)
}

// losing is a queue whose AckClaim fails while it carries acks, after a while or from the
// beginning.
type losing struct {
	carrying
	atEnd bool
}

func (q losing) AckClaim(ctx context.Context, acks []int64, c driver.Claim) (acked []int64, jobs []penstock.Job, err error) {
	if len(acks) == 0 {
		return q.carrying.AckClaim(ctx, acks, c)
	}
	if q.atEnd {
		if _, err := q.Ack(ctx, acks...); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, errors.New("connection lost")
}
