package cli

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// ShownPayload is how many bytes of a payload are shown unless all are wanted.
const ShownPayload = 2 << 10

// DeadLetterText is a dead letter for people, one fact per line.
type DeadLetterText struct{ strings.Builder }

func (t *DeadLetterText) Line(name, format string, args ...any) {
	fmt.Fprintf(t, "%-9s %s\n", name, fmt.Sprintf(format, args...))
}

func (t *DeadLetterText) Times(created, died, now time.Time, attempts int) {
	t.Line("created", "%s", Clock(created))
	t.Line("died", "%s, %s ago, after %s", Clock(died), Since(died, now), terminal.Plural(int64(attempts), "attempt"))
}

func (t *DeadLetterText) Headers(headers map[string]string) {
	for i, name := range slices.Sorted(maps.Keys(headers)) {
		t.Line(map[bool]string{true: "headers"}[i == 0], "%s: %s", shell.Visible(name), shell.Visible(headers[name]))
	}
}

func (t *DeadLetterText) Failures(failures []penstock.Failure) {
	for i, f := range failures {
		line, more, _ := strings.Cut(f.Err, "\n")
		t.Line(map[bool]string{true: "errors"}[i == 0], "%d  %s  %s", f.Attempt, Clock(f.At), shell.Visible(line))
		for line := range strings.Lines(more) { // from where it was called, and the causes
			t.Line("", "     %s", shell.Visible(strings.TrimSuffix(line, "\n")))
		}
	}
}

func (t *DeadLetterText) Payload(payload []byte, full bool) {
	shown, kind := payload, "text"
	if !utf8.Valid(payload) {
		kind = "base64 of bytes that are not text"
	}
	if !full && len(payload) > ShownPayload {
		shown = payload[:ShownPayload]
		if kind == "text" {
			for !utf8.Valid(shown) { // not within a character
				shown = shown[:len(shown)-1]
			}
		}
		kind += fmt.Sprintf("; the first %s, --full shows the rest", terminal.Size(int64(len(shown))))
	}
	if len(payload) == 0 {
		t.WriteString("payload   empty\n")
		return
	}
	fmt.Fprintf(t, "payload   %s (%s)\n\n", terminal.Size(int64(len(payload))), kind)
	if !utf8.Valid(payload) {
		t.WriteString(base64.StdEncoding.EncodeToString(shown) + "\n")
		return
	}
	for text := range strings.Lines(string(shown)) {
		fmt.Fprintf(t, "%s\n", shell.Visible(strings.ReplaceAll(strings.TrimRight(text, "\r\n"), "\t", "    ")))
	}
}

// PayloadJSON is a payload for programs, as penstock publish and enqueue read it: exactly one of
// the two fields.
type PayloadJSON struct {
	Payload       *string `json:"payload,omitempty"`
	PayloadBase64 []byte  `json:"payload_base64,omitempty"`
}

func PayloadFor(payload []byte) PayloadJSON {
	if !utf8.Valid(payload) {
		return PayloadJSON{PayloadBase64: payload}
	}
	text := string(payload)
	return PayloadJSON{Payload: &text}
}

// NotNull makes JSON show failures as [] rather than null.
func NotNull(failures []penstock.Failure) []penstock.Failure {
	if failures == nil {
		return []penstock.Failure{}
	}
	return failures
}

// Span is a flag for a length of time: Go's durations, and days.
type Span time.Duration

func (s *Span) String() string {
	if *s == 0 {
		return "" // not given; --help shows no default then
	}
	return SpanText(time.Duration(*s))
}

func (s *Span) Type() string { return "duration" }

func (s *Span) Set(v string) error {
	d, err := ParseSpan(v)
	*s = Span(d)
	return err
}

var errSpan = errors.New("use a number with ms, s, m, h or d, such as 90s, 24h or 7d")

// ParseSpan parses 90s, 15m, 24h, 7d, 1d12h.
func ParseSpan(v string) (time.Duration, error) {
	whole, rest := time.Duration(0), v
	if days, after, ok := strings.Cut(v, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, errSpan
		}
		if whole, rest = time.Duration(n)*24*time.Hour, after; rest == "" {
			return whole, nil
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || strings.ContainsAny(rest[:1], "+-") || whole+d < whole {
		return 0, errSpan
	}
	return whole + d, nil
}

// SpanText writes a duration as ParseSpan reads it, without units that are zero.
func SpanText(d time.Duration) string {
	if d <= 0 || d%time.Second != 0 {
		return d.String()
	}
	var out strings.Builder
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if n := d / unit.size; n > 0 {
			fmt.Fprintf(&out, "%d%s", n, unit.name)
			d -= n * unit.size
		}
	}
	return out.String()
}

// Place is one end of a range of messages: a seq, a time, or neither.
type Place struct {
	Seq  int64
	Time time.Time
}

// timeLayouts without an offset are read in the local time zone.
var timeLayouts = []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"}

// ParsePlace parses a seq, a time, or -2h for two hours ago.
func ParsePlace(v string, now time.Time) (Place, error) {
	if seq, err := strconv.ParseInt(v, 10, 64); err == nil {
		if seq < 0 || v[0] == '+' || v[0] == '-' {
			return Place{}, errors.New("a seq is 0 or more; for a time ago give its unit, such as -2h")
		}
		return Place{Seq: seq}, nil
	}
	if strings.HasPrefix(v, "-") {
		ago, err := ParseSpan(v[1:])
		if err != nil {
			return Place{}, errors.New("a time ago is written like -90s, -2h or -7d")
		}
		return Place{Time: now.Add(-ago)}, nil
	}
	if t, ok := ParseTime(v); ok {
		return Place{Time: t}, nil
	}
	return Place{}, errors.New(`use a seq such as 1200, a time such as 2026-11-21T15:04:05Z or "2026-11-21 15:04" (local), or -2h for two hours ago`)
}

// ParseTime parses a time as people and programs write it.
func ParseTime(v string) (time.Time, bool) {
	if t, err := time.Parse(time.RFC3339, v); err == nil {
		return t, true
	}
	for _, layout := range timeLayouts {
		if t, err := time.ParseInLocation(layout, v, time.Local); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// Clock writes a moment for people, in local time.
func Clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// Since is how long ago something was, at least 0: the clocks of two machines may disagree.
func Since(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return Coarse(max(now.Sub(t), 0))
}

// Coarse writes a duration in its two largest units: 3d4h, 12m5s.
func Coarse(d time.Duration) string {
	switch {
	case d >= 24*time.Hour:
		d = d.Truncate(time.Hour)
	case d >= time.Hour:
		d = d.Truncate(time.Minute)
	default:
		d = d.Truncate(time.Second)
	}
	return SpanText(d)
}

// Until returns how long it takes until t, or "" if t is zero.
func Until(t, now time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case !t.After(now):
		return "now"
	}
	return "in " + Coarse(t.Sub(now)+time.Second-1)
}

// Age writes a duration with a precision that suits people.
func Age(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d >= 100*time.Hour:
		return Coarse(d)
	}
	return d.Round(time.Second).String()
}

// RetentionText says it for people.
func RetentionText(r admin.Retention) string {
	switch {
	case r.Age > 0 && r.Bytes > 0:
		return SpanText(r.Age) + " or " + terminal.Size(r.Bytes)
	case r.Age > 0:
		return SpanText(r.Age)
	case r.Bytes > 0:
		return terminal.Size(r.Bytes)
	}
	return "not at all"
}

// ParseSize takes 4096, 64KiB, 512MiB, 1GiB, 2TiB.
func ParseSize(v string) (int64, error) {
	number, unit := v, int64(1)
	for i, suffix := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if n, ok := strings.CutSuffix(v, suffix); ok {
			number, unit = strings.TrimSpace(n), 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, errors.New("use a whole number of bytes, KiB, MiB, GiB or TiB, such as 1GiB")
	}
	return n * unit, nil
}
