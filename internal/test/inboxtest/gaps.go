package inboxtest

import (
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/messageid"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

// idsOf gives the id of the nth message of an outbox.
func idsOf(uid string) func(n int) string {
	outbox := messageid.Outbox{UID: uid}
	return func(n int) string { return outbox.ID(int64(n), time.Date(2026, 11, 22, 12, 0, n, 0, time.UTC)) }
}

// A message behind a second gap is late if it was written before the one handed over past the first, and so is the message
// that follows it. The key continues where it was. A message that was written later is not late.
func secondGap(f *fixture) {
	for _, uid := range []string{"3f2a", "3f2a9c0b1d4e"} { // short ids, and those of outboxes of earlier versions
		secondGapOf(f, idsOf(uid), uid)
	}
}

func secondGapOf(f *fixture, written func(n int) string, other string) {
	receive := func(n, previous int, want ...string) {
		f.in(func(tx Tx) { f.receive(tx, written(n), written(previous), 0, want...) })
	}
	due := func(want ...string) {
		f.in(func(tx Tx) { f.due(tx, want...) })
	}
	f.in(func(tx Tx) { f.receive(tx, written(1), "", 0, written(1)) })
	receive(12, 11)
	receive(3, 2)
	receive(4, 3)
	due(written(12)+" after the gap "+written(11), written(3)+" after the gap "+written(2)+" late", written(4)+" late")
	receive(13, 12, written(13))
	receive(7, 2, written(7)+" after the gap "+written(2)+" late") // that was waited for already
	receive(11, 10)                                                // it waits for 10, late or not
	due(written(11) + " after the gap " + written(10) + " late")
	receive(10, 9)
	due(written(10) + " after the gap " + written(9) + " late")
	receive(14, 13, written(14))
	receive(17, 16)
	due(written(17) + " after the gap " + written(16))
	receive(18, 17, written(18))
	receive(16, 15)
	receive(15, 14, written(15)+" late", written(16)+" late")
	receive(19, 18, written(19))
	f.in(func(tx Tx) { // of such ids nothing is known
		f.receive(tx, other+"b", other+"a", 0)
		f.due(tx, other+"b after the gap "+other+"a")
		f.receive(tx, other+"c", other+"b", 0, other+"c")
	})
}

// The order of producers' own ids is unknown: a message behind a second gap counts as newer than the one handed over past the first.
// If a message between them still comes, it shows that the later part is older, and the key continues where it was.
func ownIDs(f *fixture) {
	receive := func(id, previous string, want ...string) {
		f.in(func(tx Tx) { f.receive(tx, id, previous, 0, want...) })
	}
	for _, known := range []bool{false, true} {
		id := func(n int) string { return fmt.Sprint(known, n) }
		receive(id(1), "", id(1))
		receive(id(6), id(5))
		receive(id(3), id(2))
		receive(id(4), id(3))
		f.in(func(tx Tx) {
			f.due(tx, id(6)+" after the gap "+id(5), id(3)+" after the gap "+id(2), id(4))
		})
		if known {
			receive(id(5), id(4), id(5)+" late")
			receive(id(7), id(6), id(7))
		} else {
			receive(id(7), id(6), id(7)+" late")
		}
		receive(id(2), id(1), id(2)+" late")
	}
}

// A message that joins two parts of a key sets its head to the end of the part that is the newer one, however long that has become.
func joined(f *fixture) {
	receive := func(n, previous int, want ...string) {
		f.in(func(tx Tx) { f.receive(tx, fmt.Sprint("m", n), fmt.Sprint("m", previous), 0, want...) })
	}
	due := func(want ...string) {
		f.in(func(tx Tx) { f.due(tx, want...) })
	}
	f.in(func(tx Tx) { f.receive(tx, "m1", "", 0, "m1") })
	receive(6, 5)
	due("m6 after the gap m5")
	receive(7, 6, "m7")
	receive(3, 2)
	due("m3 after the gap m2")
	receive(4, 3, "m4")
	receive(5, 4, "m5 late")
	receive(8, 7, "m8")
	receive(2, 1, "m2 late")
	receive(9, 8, "m9")

	receive(30, 29) // three parts, of which the oldest comes last, and the one in the middle continues
	receive(20, 19)
	receive(11, 10)
	due("m30 after the gap m29", "m20 after the gap m19", "m11 after the gap m10")
	receive(21, 20, "m21 late")
	receive(12, 11, "m12")
	receive(19, 18)
	receive(29, 28)
	due("m19 after the gap m18 late", "m29 after the gap m28 late")
	receive(28, 21, "m28 late")
	receive(18, 12, "m18 late")
	receive(31, 30, "m31")
}

// A discarded message that comes again is late. Nothing was handed over in its place, so the message that follows it is
// not late.
func discardedComesAgain(f *fixture) {
	for _, released := range []bool{false, true} { // the messages that waited for it, before it comes again
		id := func(n int) string { return fmt.Sprint(released, n) }
		receive := func(n int, want ...string) {
			f.in(func(tx Tx) { f.receive(tx, id(n), id(n-1), time.Hour, want...) })
		}
		f.in(func(tx Tx) { f.receive(tx, id(1), "", 0, id(1)) })
		receive(3)
		receive(4)
		suite.Get(f.Store.DiscardHeld(f.Context(), consumer, id(3))).Must(f, "DiscardHeld")
		receive(2, id(2))
		if released {
			f.in(func(tx Tx) { f.due(tx, id(4)+" after the gap "+id(3)) })
			receive(3, id(3)+" late")
		} else {
			receive(3, id(3)+" late", id(4))
		}
		receive(5, id(5))
	}
}

// Messages of several keys come in any order and again, some never, and transactions roll back. Each is handed over once,
// and is late if one of its key is before it that was sent later, and only then.
func randomGaps(f *fixture) { randomOrder(f, idsOf("3f2a"), 12) }

// The order of producers' own ids is not known until all up to one have come. From then on the key is in order again.
func randomOwnIDs(f *fixture) {
	randomOrder(f, func(n int) string { return fmt.Sprint("own ", n) }, 0)
}

// randomOrder loses one message in every given number, or none. Message n is of key n % keys, and follows n - keys.
func randomOrder(f *fixture, id func(n int) string, loses int) {
	f.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	const keys = 3
	r := testseed.New(f.Name(), 0)
	var todo []int
	coming := map[string]int{}
	sent := keys * testseed.Steps(160)
	for n := range sent {
		if n < keys || loses == 0 || r.IntN(loses) > 0 {
			coming[id(n)] = n
			todo = append(todo, n)
		}
	}
	came, last, handed, missing := map[int]bool{}, map[int]int{}, map[int]int{}, map[string]bool{}
	take := func(released []penstock.Released) {
		for _, m := range released {
			n, ok := coming[m.ID]
			if !ok || came[n] {
				f.Fatalf("%d, %s, was handed over again, or never came", n, m.ID)
			}
			came[n] = true
			key := n % keys
			handed[key]++
			all := handed[key] == n/keys+1 && n >= last[key] // of the key, up to this one
			if late := n < last[key]; m.Late != late && (loses > 0 || missing[m.ID] || all) {
				f.Fatalf("%d comes after %d: late is %v, gap is %v", n, last[key], m.Late, m.Gap)
			}
			if m.Gap != (m.Missing != "") || m.Gap == (n < keys || came[n-keys]) {
				f.Fatalf("%d comes before %d: gap is %v, missing %q", n, n-keys, m.Gap, m.Missing)
			}
			missing[m.Missing] = true
			last[key] = max(last[key], n)
		}
	}
	call := func(fn func(tx Tx) ([]penstock.Released, error)) (done bool) {
		tx := f.begin()
		released := suite.Get(fn(tx)).Must(f, "the call")
		if r.IntN(8) == 0 {
			f.OK(tx.Rollback())
			return false
		}
		f.OK(tx.Commit())
		take(released)
		return true
	}
	due := func() bool {
		return call(func(tx Tx) ([]penstock.Released, error) { return tx.Due(f.Context(), 1+r.IntN(3)) })
	}
	message := func(n int) penstock.Message {
		m := received(fmt.Sprint(n%keys), id(n), "")
		if n >= keys {
			m.Headers = map[string]string{penstock.HeaderPrevious: id(n - keys)}
		}
		return m
	}
	for begun := 0; len(todo) > 0; {
		at := r.IntN(min(len(todo), 30))
		if begun < keys { // a message without a predecessor is handed over at once, and never late
			at = 0
		}
		n := todo[at]
		wait := []time.Duration{0, time.Hour}[r.IntN(2)]
		if call(func(tx Tx) ([]penstock.Released, error) { return tx.InOrder(f.Context(), message(n), wait) }) && (n < keys || r.IntN(4) > 0) {
			begun++
			todo = append(todo[:at], todo[at+1:]...) // else it comes again
		}
		if r.IntN(12) == 0 {
			due()
		}
	}
	suite.Get(f.Store.ReleaseHeld(f.Context(), admin.HeldQuery{Consumer: consumer})).Must(f, "ReleaseHeld")
	for before := -1; before != len(came); {
		before = len(came)
		for !due() {
		}
	}
	suite.Equal(f, len(came), len(coming), "messages that were handed over")
	for n := sent; loses == 0 && n < sent+keys; n++ {
		tx := f.begin()
		released := suite.Get(tx.InOrder(f.Context(), message(n), 0)).Must(f, "InOrder")
		f.OK(tx.Commit())
		if len(released) != 1 || released[0].Gap || released[0].Late {
			f.Errorf("after all of key %d came, the next one: %+v", n%keys, released)
		}
	}
}
