package messageid_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/internal/messageid"
)

var written = time.Date(2026, 11, 22, 12, 0, 0, 123456000, time.UTC)

// Consumers, inboxes and dead letters have these strings: they never change.
func TestIDsAreForEver(t *testing.T) {
	for _, c := range []struct {
		outbox messageid.Outbox
		seq    int64
		at     time.Time
		want   string
	}{
		{messageid.Outbox{UID: "3f2a9c0b1d4e"}, 1, written, "3f2a9c0b1d4e-1-hoebup279c"},
		{messageid.Outbox{UID: "3F2a"}, 1, written, "3F2a~8Do7abMye1"},
		{messageid.Outbox{UID: "3F2a"}, 1<<63 - 1, time.UnixMicro(0), "3F2a~000000000AzL8n0Y58m7"},
		{messageid.Outbox{UID: "3F2a"}, 7, time.UnixMicro(-36), "3F2a-7--10"},
		{messageid.Outbox{UID: "3F2a"}, 7, time.Date(2400, 1, 1, 0, 0, 0, 0, time.UTC), "3F2a-7-3plz2ft0qo0"},
		{messageid.Outbox{UID: "u"}, 9007199254740993, time.UnixMicro(0), "u-9007199254740993-0"},
		{messageid.Outbox{UID: "u"}, 7, time.UnixMicro(-36), "u-7--10"}, // a producer may have written at any time
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

// The same position in two histories of a database belongs to two messages.
func TestAnotherTimeIsAnotherID(t *testing.T) {
	o := messageid.Outbox{UID: "u"}
	if a, b := o.ID(1, written), o.ID(1, written.Add(time.Microsecond)); a == b {
		t.Errorf("two messages have the id %q", a)
	}
}

func TestParseTakesOnlyItsOwn(t *testing.T) {
	for _, id := range []string{"3F2a", "3F2a~", "3F2a~8AAAAAAAA", "3F2a~8AAAAAAAA01", "3F2a~8AAAAAAAA-", "3F2b~8AAAAAAAA1", "3F2a~8AAAAAAAAAzL8n0Y58m8", "3F2a~8AAAAAAAA1zzzzzzzzzzzz", "3F2a-1-hoebup279c"} {
		if seq, at, ok := (messageid.Outbox{UID: "3F2a"}).Parse(id); ok {
			t.Errorf("Parse(%q) = %d, %v", id, seq, at)
		}
	}
	o := messageid.Outbox{UID: "u"}
	for _, id := range []string{"", "u", "u-", "u-x", "v-1", "uu-1", "u-42", "u-42-", "u-42-!", "u-042-10", "u-42-A", "u-+42-a", "u-42-a-b", "order-1"} {
		if seq, at, ok := o.Parse(id); ok {
			t.Errorf("Parse(%q) = %d, %v", id, seq, at)
		}
	}
}

func TestBefore(t *testing.T) {
	first, second := messageid.Outbox{UID: "u"}.ID(9, written), messageid.Outbox{UID: "u"}.ID(10, written.Add(time.Second))
	short := func(seq int64, later time.Duration) string {
		return messageid.Outbox{UID: "3F2a"}.ID(seq, written.Add(later))
	}
	for _, c := range []struct {
		id, other string
		want      bool
	}{
		{first, second, true},
		{short(9, 0), short(1e6, 0), true},
		{short(1e6, 0), short(9, 0), false},
		{short(9, time.Hour), short(10, 0), false}, // one of both lies
		{short(9, 0), messageid.Outbox{UID: "3F2b"}.ID(10, written), false},
		{short(9, 0), second, false},
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

// RabbitMQ is slower with longer ids.
func TestIDsHaveTwentyBytes(t *testing.T) {
	uid := messageid.NewUID()
	if id := (messageid.Outbox{UID: uid}).ID(56e9, written.AddDate(300, 0, 0)); len(id) > 20 {
		t.Errorf("%q has %d bytes", id, len(id))
	}
}
