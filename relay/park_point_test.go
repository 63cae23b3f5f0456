package relay

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
)

// Messages fetched while a Parked verdict becomes durable are not flagged BehindParked, so the
// relay has to park them.
func TestFetchDuringParkingSettle(t *testing.T) {
	bad := &refuse{seq: 1}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		hang, held := newFlag(false), make(chan struct{})
		l.fetchWait = func(ctx context.Context) {
			if hang.Load() {
				<-held
			}
		}
		l.publishKeys(1, "a")
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.ParkAfter = 1 })
		synctest.Wait()
		hang.Store(true)
		pass(400 * time.Millisecond) // a Fetch has begun, and then message 1 was parked
		if parked, _ := l.parkedMessages(); parked != 1 {
			t.Fatalf("%d parked, want 1", parked)
		}
		l.publishKeys(3, "a", "b", "a")
		hang.Store(false)
		close(held)
		synctest.Wait()
		k.letGo(bad)
		pass(time.Minute)
		finish(t, r, result, l, k)
		checkOrder(t, l, k)
	})
}

// The verdict of a message that came BehindParked waits in memory for a slow message of its batch,
// while the rest of the key is delivered. Messages that come then are not flagged, though one
// before them is not delivered.
func TestBehindParkedInASlowBatch(t *testing.T) {
	bad := &refuse{seq: 1}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		second, slow := make(chan struct{}), make(chan struct{})
		k.before = func(_ context.Context, msgs []penstock.Message) {
			switch m := &msgs[0]; {
			case m.Seq == 1 && m.Attempt == 2:
				<-second
			case m.Seq == 2:
				<-slow
			}
		}
		l.publishKeys(1, "a")
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.ParkAfter, c.MaxBatch = 1, 1 })
		pass(time.Second) // 1 was parked and is tried again
		l.publishKeys(2, "", "a")
		pass(100 * time.Millisecond) // 2 hangs, 3 came behind 1
		k.letGo(bad)
		close(second)
		pass(100 * time.Millisecond)
		if parked, _ := l.parkedMessages(); parked != 0 || l.cursor() != 1 {
			t.Errorf("parked %d, settled %d, want none but a verdict in memory, and 1", parked, l.cursor())
		}
		l.publishKeys(1, "a")
		pass(time.Second)
		close(slow)
		pass(time.Minute)
		finish(t, r, result, l, k)
		checkOrder(t, l, k)
	})
}

// The answer of a Settle that parked a key is lost, and the source goes back. The Fetch saw the
// cursor after the Settle and the park before it. Nothing is sent out of turn, whether or not the
// Settle is running again by then.
func TestRewindDuringParkingSettle(t *testing.T) {
	for _, underWay := range []bool{false, true} {
		t.Run(fmt.Sprintf("underway=%v", underWay), func(t *testing.T) { rewindDuringParkingSettle(t, underWay) })
	}
}

func rewindDuringParkingSettle(t *testing.T, underWay bool) {
	bad := &refuse{seq: 1}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		inFetch, fetchGo, settleGo := make(chan struct{}), make(chan struct{}), make(chan struct{})
		hold, settles := newFlag(false), 0
		l.fetchWait = func(context.Context) {
			if hold.CompareAndSwap(true, false) {
				close(inFetch)
				<-fetchGo
			}
		}
		l.settleWait = func(ctx context.Context) {
			switch settles++; settles {
			case 1: // takes effect between the two halves of the next Fetch
				hold.Store(true)
				<-inFetch
			case 2:
				<-settleGo
			}
		}
		lie := once()
		l.settleLie = func() error {
			if lie() {
				return errFlaky
			}
			return nil
		}
		l.publishKeys(4, "a")
		r, result := start(t, t.Context(), l, k, func(c *Options) { c.ParkAfter = 1 })
		for l.cursor() == 0 {
			pass(time.Millisecond)
		}
		if underWay {
			pass(200 * time.Millisecond)
		}
		l.mu.Lock()
		l.rewind = once()
		l.mu.Unlock()
		l.publishKeys(4, "a")
		k.letGo(bad)
		close(fetchGo)
		pass(40 * time.Millisecond)
		close(settleGo)
		pass(time.Minute)
		finish(t, r, result, l, k)
		checkOrder(t, l, k)
	})
}
