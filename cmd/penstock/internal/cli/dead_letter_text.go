package cli

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock"
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
		t.Line(map[bool]string{true: "errors"}[i == 0], "%d  %s  %s", f.Attempt, Clock(f.At), shell.Visible(f.Err))
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
