package messageid_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/internal/messageid"
)

var written = time.Date(2026, 11, 22, 12, 0, 0, 123456000, time.UTC)

// These strings are at consumers, in inboxes and dead letters: they never change.
func TestIDsAreForEver(t *testing.T) {
	for _, c := range []struct {
		outbox messageid.Outbox
		seq    int64
		at     time.Time
		want   string
	}{
		{messageid.Outbox{UID: "3f2a9c0b1d4e"}, 1, written, "3f2a9c0b1d4e-1-hoebup279c"},
		{messageid.Outbox{UID: "u"}, 9007199254740993, time.UnixMicro(0), "u-9007199254740993-0"},
		{messageid.Outbox{UID: "u"}, 7, time.UnixMicro(-36), "u-7--10"}, // a producer may have written any time
	} {
		if got := c.outbox.ID(c.seq, c.at); got != c.want {
			t.Errorf("ID(%d, %v) of %+v = %q, want %q", c.seq, c.at, c.outbox, got, c.want)
		}
		seq, at, ok := c.outbox.Parse(c.want)
		if !ok || seq != c.seq || !at.Equal(c.at) {
			t.Errorf("Parse(%q) = %d, %v, %v", c.want, seq, at, ok)
		}
	}
}

// The same position in two histories of a database is two messages.
func TestAnotherTimeIsAnotherID(t *testing.T) {
	o := messageid.Outbox{UID: "u"}
	if a, b := o.ID(1, written), o.ID(1, written.Add(time.Microsecond)); a == b {
		t.Errorf("two messages have the id %q", a)
	}
}

func TestParseTakesOnlyItsOwn(t *testing.T) {
	o := messageid.Outbox{UID: "u"}
	for _, id := range []string{"", "u", "u-", "u-x", "v-1", "uu-1", "u-42", "u-42-", "u-42-!", "u-042-10", "u-42-A", "u-+42-a", "u-42-a-b", "order-1"} {
		if seq, at, ok := o.Parse(id); ok {
			t.Errorf("Parse(%q) = %d, %v", id, seq, at)
		}
	}
}

func TestBefore(t *testing.T) {
	first, second := messageid.Outbox{UID: "u"}.ID(9, written), messageid.Outbox{UID: "u"}.ID(10, written.Add(time.Second))
	for _, c := range []struct {
		id, other string
		want      bool
	}{
		{first, second, true},
		{second, first, false},
		{first, first, false},
		{messageid.Outbox{UID: "u"}.ID(9, written.Add(time.Hour)), second, false}, // one of both lies
		{messageid.Outbox{UID: "v"}.ID(9, written), second, false},
		{"", second, false},
		{first, "", false},
		{"u-3-version", "u-10-version", false},
		{"m3", "m6", false},
	} {
		if got := messageid.Before(c.id, c.other); got != c.want {
			t.Errorf("Before(%q, %q) is %v", c.id, c.other, got)
		}
	}
}
