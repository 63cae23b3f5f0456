package relay

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestDeliversEverythingInOrderAndSettles(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, k := &outbox{}, &sink{t: t, inOrder: inOrder}
			l.publishKeys(1000, "a", "b", "", "a", "c")
			r, result := start(t, t.Context(), l, k, nil)
			pass(5 * time.Second)
			finish(t, r, result, l, k)
			checkOrder(t, l, k)
			if l.settled != 1000 || k.delivered() != 1000 {
				t.Errorf("settled %d, delivered %d, want 1000 each", l.settled, k.delivered())
			}
		})
	}
}
