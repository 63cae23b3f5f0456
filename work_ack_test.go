package penstock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
)

// carrying is a fakeQueue that is an AckClaimer.
type carrying struct{ *fakeQueue }

func (q carrying) AckClaim(ctx context.Context, acks []int64, c penstock.Claim) (acked []int64, jobs []penstock.Job, err error) {
	end, err := q.call(ctx, "ackclaim")
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

// trickle adds a job a millisecond.
func (q *fakeQueue) trickle(jobs int) {
	for i := range jobs {
		time.Sleep(time.Millisecond)
		q.mu.Lock()
		q.waiting = append(q.waiting, penstock.Job{ID: int64(i + 1), Payload: []byte(fmt.Sprint("j", i))})
		q.mu.Unlock()
	}
}

// While jobs keep coming, claims carry what is done; a long silence does not hold it up.
func TestWorkAcksWithClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(0)
		seen, stop := work(t, carrying{q}, nothing, penstock.WorkOptions{})
		q.trickle(2000)
		time.Sleep(7 * time.Millisecond)
		q.mu.Lock()
		if len(q.done) != 2000 || q.calls["ackclaim"] < 500 || q.calls["ack"] > 0 {
			t.Errorf("%d of 2000 jobs are done, with %d claims and %d calls of Ack, want none of these", len(q.done), q.calls["ackclaim"], q.calls["ack"])
		}
		q.mu.Unlock()
		if err := stop(); err != nil || seen.count(penstock.JobDone) != 2000 {
			t.Errorf("the observer saw %v, error %v", seen.ends, err)
		}
	})
}

// What is done when no claim is near is written by itself, after AckEvery.
func TestWorkAcksAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(2)
		_, stop := work(t, carrying{q}, func(context.Context, penstock.Job) error { time.Sleep(500 * time.Millisecond); return nil },
			penstock.WorkOptions{AckEvery: 3 * time.Millisecond, PollMin: time.Second, PollMax: time.Second})
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

// What is done is written though claims fail, and counted once, though a call that failed
// had written it.
func TestWorkClaimsFailWithAcks(t *testing.T) {
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprint("written ", written), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newFakeQueue(10)
				claims := losing{carrying{q}, written}
				seen, stop := work(t, claims, nothing, penstock.WorkOptions{})
				time.Sleep(time.Second)
				q.mu.Lock()
				if len(q.done) != 10 || q.calls["ack"] == 0 {
					t.Errorf("%d of 10 jobs are done, with %d calls of Ack", len(q.done), q.calls["ack"])
				}
				q.mu.Unlock()
				if err := stop(); err != nil {
					t.Error(err)
				}
				done, lost := seen.count(penstock.JobDone), seen.count(penstock.JobLost)
				if !written && done != 10 || written && lost != 10 || done+lost != 10 {
					t.Errorf("the observer saw %v, want each job once", seen.ends)
				}
			})
		})
	}
}

// losing is a queue whose AckClaim always fails, in the end or from the beginning.
type losing struct {
	carrying
	atEnd bool
}

func (q losing) AckClaim(ctx context.Context, acks []int64, _ penstock.Claim) (acked []int64, jobs []penstock.Job, err error) {
	if q.atEnd {
		if _, err := q.Ack(ctx, acks...); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, errors.New("connection lost")
}
