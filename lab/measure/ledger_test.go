package measure

import (
	"context"
	"errors"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/sink/discard"
)

var numbered = load{topic: "t", keyName: "key-", keys: 2, payload: digits}

func TestLedgerFindsWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		numbers []int
		want    Check
	}{
		"all right":               {[]int{1, 0, 2, 3}, Check{}},
		"a message twice":         {[]int{0, 1, 2, 1, 3}, Check{Duplicates: 1}},
		"lost":                    {[]int{0, 1, 3}, Check{Lost: 1}},
		"two of a key, swapped":   {[]int{2, 0, 1, 3}, Check{OutOfOrder: 1}},
		"again after a later one": {[]int{0, 2, 0, 1, 3}, Check{Duplicates: 1}},
	} {
		l := newLedger(2, nil)
		for _, n := range c.numbers {
			l.arrived(numbered.messages(n, 1)[0].Payload)
		}
		if got, err := l.check("", 4, ""); got != c.want || (err == nil) != (got.Lost == 0 && got.OutOfOrder == 0) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func TestLedgerCountsEachMessageOnce(t *testing.T) {
	l := newLedger(2, func(n int) bool { return n < 10 })
	l.expect(2)
	msgs := numbered.messages(0, 1)
	msgs[0].Attempt = 3
	l.arrive(msgs, nil)
	l.arrive(msgs, []error{errors.New("refused")})
	l.arrive(numbered.messages(50, 1), nil) // not one of those
	msgs[0].Attempt = 1
	l.arrive(msgs, nil)
	select {
	case <-l.reached:
		t.Fatal("one message was counted as two")
	default:
	}
	l.arrive(withAttempt(numbered.messages(1, 1)), nil)
	if _, err := l.await(context.Background()); err != nil {
		t.Fatal(err)
	}
	if l.attempts != 2 || l.seen.twice != 1 {
		t.Errorf("%d attempts beyond the first and %d duplicates, want 2 and 1", l.attempts, l.seen.twice)
	}
}

func withAttempt(msgs []penstock.Message) []penstock.Message {
	for i := range msgs {
		msgs[i].Attempt = 1
	}
	return msgs
}

func TestValveRefusesWhatItIsToldTo(t *testing.T) {
	sink, err := discard.Open(discard.Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	v := &valve{Sink: sink, confirmed: newLedger(2, nil), err: refused, refuse: func(m *penstock.Message) bool { return m.Key == "key-1" }}
	msgs := withAttempt(numbered.messages(0, 4))
	v.shut.Store(true)
	for i, err := range v.Send(t.Context(), msgs) {
		if want := i%2 == 1; errors.Is(err, refused) != want {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if got := v.confirmed.total(); got != 2 {
		t.Errorf("%d confirmed, want 2", got)
	}
	v.shut.Store(false)
	if errs := v.Send(t.Context(), msgs); errs != nil {
		t.Errorf("open, it answered %v", errs)
	}
}

// refuser refuses one message.
type refuser struct {
	driver.Sink
	number int
}

func (s refuser) Send(_ context.Context, msgs []penstock.Message) []error {
	errs := make([]error, len(msgs))
	for i := range msgs {
		if n, _ := number(msgs[i].Payload); n == s.number {
			errs[i] = errors.New("the sink itself refuses")
		}
	}
	return errs
}

func TestValvePassesOnWhatTheSinkSays(t *testing.T) {
	v := &valve{Sink: refuser{number: 4}, confirmed: newLedger(2, nil), err: errors.New("refused"), refuse: func(m *penstock.Message) bool { return m.Key == "key-1" }}
	v.shut.Store(true)
	for i, err := range v.Send(t.Context(), withAttempt(numbered.messages(0, 6))) {
		if want := i%2 == 1 || i == 4; (err != nil) != want {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if got := v.confirmed.total(); got != 2 {
		t.Errorf("%d confirmed, want 2", got)
	}
	if v.KeepsOrder() {
		t.Error("the valve promises an order that its sink does not")
	}
}
