package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/admin"
)

// held lists what is held and for what.
func (f *inboxFixture) held(q admin.HeldQuery) (all []string) {
	f.Helper()
	q.Consumer = "billing"
	found, err := f.store.HeldMessages(f.Ctx, q)
	f.Must(err)
	for _, m := range found {
		text := m.ID + " for " + m.Previous
		if m.PreviousHeld {
			text += ", held"
		}
		all = append(all, text)
	}
	return all
}

func (f *inboxFixture) wantHeld(want ...string) {
	f.Helper()
	if got := f.held(admin.HeldQuery{}); !slices.Equal(got, want) {
		f.Fatalf("held are %q, want %q", got, want)
	}
}

// A held message is shown from every segment of the ring, and found when it is released.
func TestInboxReleaseOverTurns(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	for i := range 3 {
		wantReleased(t, f.receive(arrival("k", fmt.Sprint(2*i+2), fmt.Sprint(2*i+1)), time.Duration(3-i)*time.Hour))
		if i < 2 {
			start, _ := f.turn(f.Conn)
			f.ageTo(start + 1)
		}
	}
	f.wantHeld("6 for 5", "4 for 3", "2 for 1")
	if n, err := f.store.ReleaseHeld(f.Ctx, admin.HeldQuery{Consumer: "billing", Previous: "3"}); n != 1 || err != nil {
		t.Errorf("released %d, %v, want 1", n, err)
	}
	wantReleased(t, f.due(10), "4 after the gap 3")
	if n, err := f.store.ReleaseHeld(f.Ctx, admin.HeldQuery{Consumer: "billing"}); n != 2 || err != nil {
		t.Errorf("released %d, %v, want 2", n, err)
	}
	wantReleased(t, f.due(10), "2 after the gap 1", "6 after the gap 5")
	f.wantHeld()
	gaps, err := f.store.InboxGaps(f.Ctx, "billing", 10)
	f.Must(err)
	if len(gaps) != 3 || gaps[2].Missing != "3" || gaps[2].Next != "4" || gaps[2].Key != "k" || gaps[2].Came || time.Since(gaps[2].At).Abs() > time.Hour {
		t.Errorf("got %+v", gaps)
	}
}

// Messages of one key behind different gaps are released in the order in which they would have
// been. The notes about the gaps end with the window.
func TestInboxReleaseKeepsTheOrder(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	for i, id := range []string{"8", "6", "4", "2"} {
		wantReleased(t, f.receive(arrival("k", id, "before "+id), time.Duration(10-i)*time.Hour))
	}
	if n, err := f.store.ReleaseHeld(f.Ctx, admin.HeldQuery{Consumer: "billing", Key: "k"}); n != 4 || err != nil {
		t.Errorf("released %d, %v, want 4", n, err)
	}
	wantReleased(t, f.due(10), "2 after the gap before 2", "4 after the gap before 4", "6 after the gap before 6", "8 after the gap before 8")
	if gaps := f.Number("select gaps from penstock.inboxes()"); gaps != 4 {
		t.Errorf("%d gaps are known, want 4", gaps)
	}
	start, _ := f.turn(f.Conn)
	f.ageTo(start + 4) // its segment is written to again, which it is only when it is empty
	if gaps := f.Number("select gaps from penstock.inboxes()"); gaps != 0 {
		t.Errorf("%d gaps are known after the window, want none", gaps)
	}
}

// The register below which nothing is due has passed what is released: it is found all
// the same.
func TestInboxReleaseAboveTheBound(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	wantReleased(t, f.receive(arrival("k", "2", "1"), time.Hour))
	future := time.Now().Add(2 * time.Second)
	f.Exec(`select setval('penstock."__inbox.1.low"', $1)`, future.UnixMilli())
	if n, err := f.store.ReleaseHeld(f.Ctx, admin.HeldQuery{Consumer: "billing", Key: "k"}); n != 1 || err != nil {
		t.Fatalf("released %d, %v, want 1", n, err)
	}
	f.wantHeld("2 for 1")
	f.Eventually("it is handed over", func() bool { return len(f.due(10)) == 1 })
}

// discards has a message discarded, and waits until that waits for a consumer.
func (f *inboxFixture) discards(id string) (done <-chan []string) {
	f.Helper()
	answer := make(chan []string, 1)
	go func() {
		gone, err := f.store.DiscardHeld(f.Ctx, "billing", id)
		if err != nil {
			f.Error(err)
		}
		answer <- gone
	}()
	f.Eventually("discard waits", func() bool {
		return f.Number("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%inbox_discard%'") == 1
	})
	return answer
}

// A message that comes to wait for one that is being discarded does not wait for ever.
func TestInboxDiscardBeforeWhatFollows(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	wantReleased(t, f.receive(arrival("k", "3", "2"), time.Hour))
	consumer := f.begin(f.Connect())
	released, err := f.inbox.InOrder(f.Ctx, consumer, arrival("k", "4", "3"), time.Hour)
	f.Must(err)
	wantReleased(t, released)
	discarded := f.discards("3")
	f.Must(consumer.Commit(f.Ctx))
	if gone := <-discarded; len(gone) != 1 {
		t.Errorf("discarded %q", gone)
	}
	wantReleased(t, f.due(10), "4 after the gap 3")
}

// A message that a consumer is handing over is left to it: release does not wait, discard does.
func TestInboxOperatorsWhileConsumersRun(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		f := newInboxFixture(t)
		wantReleased(t, f.receive(arrival("k", "3", "2"), time.Hour))
		wantReleased(t, f.receive(arrival("l", "b", "a"), time.Hour))
		consumer := f.begin(f.Connect())
		released, err := f.inbox.InOrder(f.Ctx, consumer, arrival("k", "2", ""), time.Hour)
		f.Must(err)
		wantReleased(t, released, "2", "3")
		if n, err := f.store.ReleaseHeld(f.Ctx, admin.HeldQuery{Consumer: "billing"}); n != 1 || err != nil {
			t.Errorf("released %d, %v, want what nobody has", n, err)
		}
		wantReleased(t, f.due(10), "b after the gap a")

		discarded := f.discards("3")
		want := 1
		if commit {
			f.Must(consumer.Commit(f.Ctx))
			want = 0
		} else {
			f.Must(consumer.Rollback(f.Ctx))
		}
		if gone := <-discarded; len(gone) != want {
			t.Errorf("commit %v: discarded %q", commit, gone)
		}
		f.wantHeld()
		if commit {
			continue
		}
		wantReleased(t, f.receive(arrival("k", "2", ""), time.Hour), "2")
		wantReleased(t, f.receive(arrival("k", "4", "3"), time.Hour), "4 after the gap 3")
		wantReleased(t, f.receive(arrival("k", "3", "2"), time.Hour), "3 late")
	}
}
