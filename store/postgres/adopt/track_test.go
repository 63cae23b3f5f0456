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

// TestTransactionThatEnds: what it has written stands behind the place that the head had
// when it was not yet seen.
func TestTransactionThatEnds(t *testing.T) {
	track := adopt.NewTrack(time.Minute, start)
	at := start
	read := func(snapshot, to string) (string, bool) {
		at = at.Add(time.Second)
		back, some := track.Saw(snapshot, at)
		track.Moved(to, 1, at)
		return back, some
	}
	read("10:10:", "a")
	read("10:12:10,11", "b") // 10 and 11 began behind a
	read("11:15:11,14", "c") // 10 has ended, 14 began behind b
	if back, some := read("11:20:11", "d"); !some || back != "b" {
		t.Errorf("14 has ended: %q %v", back, some)
	}
	if back, some := read("20:20:", "e"); !some || back != "a" {
		t.Errorf("11 has ended: %q %v", back, some)
	}
	if back, some := read("20:20:", "f"); some {
		t.Errorf("nothing has ended: %q", back)
	}
	read("20:22:20,21", "g")
	track.Wrote(20) // by settling
	if back, some := read("21:22:21", "h"); some {
		t.Errorf("a settling transaction hid no message: %q", back)
	}
}
