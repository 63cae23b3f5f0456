// Package messageid derives the id of a message whose producer gave none.
//
// A position alone is not an id. After a restore, or a failover that lost the last transactions,
// positions come again with other messages, and consumers drop those as duplicates. So the id also
// says when the message was written. It is made of what is stored with the message and nothing
// else: parked, dead, replayed or restored, a message keeps its id.
package messageid

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Outbox is what all derived ids of one outbox share.
type Outbox struct {
	// UID is random, without a hyphen, and another one for every outbox.
	UID string
}

// Append appends UID-SEQ-TIME to b: the time in microseconds since 1970, in base 36.
func (o Outbox) Append(b []byte, seq int64, createdAt time.Time) []byte {
	b = append(append(b, o.UID...), '-')
	b = strconv.AppendInt(b, seq, 10)
	return strconv.AppendInt(append(b, '-'), createdAt.UnixMicro(), 36)
}

// ID is Append as a string.
func (o Outbox) ID(seq int64, createdAt time.Time) string {
	return string(o.Append(make([]byte, 0, 64), seq, createdAt))
}

// Parse takes an id apart, for looking a message up by it. Of anything that Append does not make, ok is false.
func (o Outbox) Parse(id string) (seq int64, createdAt time.Time, ok bool) {
	rest, mine := strings.CutPrefix(id, o.UID+"-")
	number, at, _ := strings.Cut(rest, "-")
	seq, err := strconv.ParseInt(number, 10, 64)
	micros, failed := strconv.ParseInt(at, 36, 64)
	if !mine || err != nil || failed != nil {
		return 0, time.Time{}, false
	}
	createdAt = time.UnixMicro(micros).UTC()
	return seq, createdAt, o.ID(seq, createdAt) == id
}

// made is what an id looks like that Append makes, until 2085.
var made = regexp.MustCompile(`^([^-]+)-([0-9]+)-([0-9a-z]{10})$`)

// Before reports whether two derived ids of one outbox say that the first message was written before the second one: by position, and
// no later. Of other ids nothing is known.
func Before(id, other string) bool {
	a, b := made.FindStringSubmatch(id), made.FindStringSubmatch(other)
	if a == nil || b == nil || a[1] != b[1] {
		return false
	}
	return (len(a[2]) < len(b[2]) || len(a[2]) == len(b[2]) && a[2] < b[2]) && a[3] <= b[3]
}
