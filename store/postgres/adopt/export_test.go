package adopt

import (
	"time"

	"github.com/penstock/penstock/driver"
)

// ReadStatement is what src's next fetch runs first, and its parameters.
func ReadStatement(src driver.Source) (sql string, args []any) {
	s := src.(*Source)
	head := s.head()
	return s.st.read[1], append([]any{1000}, head.place.args()...)
}

// Within is how many positions a look back of that span covers.
func Within(src driver.Source, span time.Duration) int {
	from, to := src.(*Source).within(span)
	return int(to.n) - int(from.n)
}

// Lags is how far src lags behind.
func Lags(src driver.Source) time.Duration { return src.(*Source).lags() }

// Settings of the connections.
const Settings = settings

// SlackTime is how far a reader looks back in any case.
const SlackTime = slackTime

// Track is a reader's track, for tests without a database.
type Track struct{ *track }

func NewTrack(margin time.Duration, now time.Time) Track { return Track{newTrack(nil, margin, now)} }

func (t Track) Moved(to string, rows int, now time.Time) { t.moved(place{to}, rows, now) }

func (t Track) Low(now time.Time) string { return text(t.low(now).place) }

func (t Track) Slack(now time.Time) string { return text(t.slack(now).place) }

func (t Track) Saw(snapshot string) (string, bool) {
	m, some := t.saw(snapshot)
	return text(m.place), some
}

func (t Track) FoundLate(span time.Duration) { t.foundLate(span) }

// Wrote notes a transaction of the reader that began after the last move.
func (t Track) Wrote(xid uint64) { t.wrote(ownTransaction{xid, t.head(), t.far}) }

// Far notes that the head is at rows that are old.
func (t Track) Far() { t.far = true }

func (t Track) Retreat(to string, now time.Time) { t.retreat(place{to}, now) }

func (t Track) Positions() int { return len(t.positions) }

func text(p place) string {
	if p == nil {
		return ""
	}
	return p[0]
}
