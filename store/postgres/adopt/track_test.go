package adopt_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock/penstock/store/postgres/adopt"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestLowWaterMarkTrailsTheHead(t *testing.T) {
	track := adopt.NewTrack(time.Minute, start)
	if got := track.Low(start.Add(time.Hour)); got != "" {
		t.Errorf("before anything was read the mark is %q", got)
	}
	for s := range 600 {
		track.Moved(fmt.Sprint(s), 10, start.Add(time.Duration(s)*time.Second))
	}
	now := start.Add(599 * time.Second)
	if got := track.Low(now); got != "539" {
		t.Errorf("a minute ago the head was at 539, the mark is at %s", got)
	}
	if n := track.Positions(); n > 70 {
		t.Errorf("%d positions are kept", n)
	}
	if got := track.Low(now.Add(time.Hour)); got != "599" {
		t.Errorf("an hour later the mark is at %s", got)
	}
}

func TestMarksAreBounded(t *testing.T) {
	track := adopt.NewTrack(time.Minute, start)
	for i := range 200_000 {
		track.Moved(fmt.Sprint(i), 1, start.Add(time.Duration(i)*time.Millisecond))
	}
	if n := track.Positions(); n > 5000 {
		t.Errorf("%d positions are kept", n)
	}
}

func TestSlackIsBoundedByRowsAndTime(t *testing.T) {
	track := adopt.NewTrack(time.Minute, start)
	track.Moved("old", 1, start.Add(time.Second))
	track.Moved("big", 5000, start.Add(10*time.Second))
	track.Moved("a", 100, start.Add(10*time.Second+20*time.Millisecond))
	track.Moved("b", 100, start.Add(10*time.Second+40*time.Millisecond))
	if got := track.Slack(start.Add(10*time.Second + 50*time.Millisecond)); got != "big" {
		t.Errorf("the slack begins at %q", got)
	}
	if got := track.Slack(start.Add(20 * time.Second)); got != "b" {
		t.Errorf("at rest the slack begins at %q", got)
	}
}

func TestSlackReachesAsFarAsRowsAreLate(t *testing.T) {
	track := adopt.NewTrack(time.Minute, start)
	for i := range 100 {
		track.Moved(fmt.Sprint(i), 1, start.Add(time.Duration(i)*100*time.Millisecond))
	}
	now := start.Add(9900 * time.Millisecond)
	if got := track.Slack(now); got != "97" {
		t.Errorf("the slack begins at %s", got)
	}
	track.FoundLate(2 * time.Second)
	if got := track.Slack(now); got != "78" {
		t.Errorf("rows were late by 2 s, the slack begins at %s", got)
	}
}

// TestTransactionThatEnds: what it has written stands behind the place that the head had when it got its number.
func TestTransactionThatEnds(t *testing.T) {
	track := adopt.NewTrack(time.Minute, start)
	at := start
	read := func(snapshot, to, want string) {
		t.Helper()
		back, some := track.Saw(snapshot)
		if some != (want != "") || some && back != want {
			t.Errorf("%s: look back to %q (%t), want %q", snapshot, back, some, want)
		}
		at = at.Add(time.Second)
		track.Moved(to, 1, at)
	}
	read("10:10:", "a", "")
	track.Wrote(10)
	read("11:13:11,12", "b", "") // 11 and 12 began behind a
	track.Wrote(13)
	read("11:16:11,15", "c", "a") // 12 has ended, and 14, which began behind b; 15 did as well
	read("11:17:11", "d", "b")    // 15 has ended, and 16
	track.Wrote(18)
	read("11:20:11,19", "e", "b") // 17 has ended; 19 began behind d
	read("20:20:", "f", "a")      // 11 has ended
	track.Wrote(20)
	read("21:21:", "g", "") // and hid no message
	read("21:21:", "h", "")
}

// TestTransactionInABacklog: where the head is at rows that are old, a transaction of now writes far ahead of it. One from before the backlog
// may have written behind it, and so may one that is not of now.
func TestTransactionInABacklog(t *testing.T) {
	track := adopt.NewTrack(time.Hour, start)
	track.Saw("10:10:")
	track.Wrote(10)
	track.Moved("old", 1, start.Add(time.Second))
	track.Far()
	track.Wrote(12)
	track.Moved("less old", 1, start.Add(2*time.Second))
	if back, some := track.Saw("11:15:11,13"); !some || back != "less old" {
		t.Errorf("14 has ended: look back to %q (%t)", back, some)
	}
	track.Moved("newer", 1, start.Add(3*time.Second))
	if back, some := track.Saw("11:15:11"); !some || back != "less old" {
		t.Errorf("13 has ended: look back to %q (%t)", back, some)
	}
	if back, some := track.Saw("15:15:"); !some || back != "" {
		t.Errorf("11 has ended: look back to %q (%t)", back, some)
	}
	track.Moved("later", 1, start.Add(time.Minute))
	if back, some := track.Saw("16:16:"); !some || back != "old" {
		t.Errorf("15 has ended: look back to %q (%t)", back, some)
	}
}

// TestNumbersThatAreGivenAgain: a server that was killed, or a standby that was promoted, lacks the last transactions.
func TestNumbersThatAreGivenAgain(t *testing.T) {
	track := adopt.NewTrack(time.Minute, start)
	track.Saw("20:20:")
	track.Moved("a", 1, start.Add(time.Second))
	track.Wrote(17)
	track.Wrote(19)
	track.Saw("17:17:")
	track.Moved("b", 1, start.Add(2*time.Second))
	if back, some := track.Saw("18:18:"); !some || back != "" {
		t.Errorf("another 17 has ended: look back to %q (%t)", back, some)
	}
	track.Wrote(18)
	if back, some := track.Saw("20:20:"); !some || back != "b" {
		t.Errorf("another 19 has ended: look back to %q (%t)", back, some)
	}
}

// TestTransactionBehindAHeadThatGoesBack: its rows cannot stand behind a place that was the head by mistake.
func TestTransactionBehindAHeadThatGoesBack(t *testing.T) {
	track := adopt.NewTrack(time.Minute, start)
	track.Saw("10:10:")
	track.Moved("far", 1, start.Add(time.Second))
	track.Wrote(10)
	track.Saw("11:13:12")
	track.Retreat("near", start.Add(2*time.Second))
	track.Moved("next", 1, start.Add(3*time.Second))
	if back, some := track.Saw("13:14:"); !some || back != "near" {
		t.Errorf("12 has ended: look back to %q (%t)", back, some)
	}
	if back, some := track.Saw("15:15:"); !some || back != "near" {
		t.Errorf("14 has ended: look back to %q (%t)", back, some)
	}
}
