package main

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock"
)

// shownPayload is how many bytes of a payload are shown unless all are wanted.
const shownPayload = 2 << 10

// letterText is a dead letter for people, one fact per line.
type letterText struct{ strings.Builder }

func (t *letterText) line(name, format string, args ...any) {
	fmt.Fprintf(t, "%-9s %s\n", name, fmt.Sprintf(format, args...))
}

func (t *letterText) times(created, died, now time.Time, attempts int) {
	t.line("created", "%s", clock(created))
	t.line("died", "%s, %s ago, after %s", clock(died), since(died, now), plural(int64(attempts), "attempt"))
}

func (t *letterText) headers(headers map[string]string) {
	for i, name := range slices.Sorted(maps.Keys(headers)) {
		t.line(map[bool]string{true: "headers"}[i == 0], "%s: %s", visible(name), visible(headers[name]))
	}
}

func (t *letterText) failures(failures []penstock.Failure) {
	for i, f := range failures {
		t.line(map[bool]string{true: "errors"}[i == 0], "%d  %s  %s", f.Attempt, clock(f.At), visible(f.Err))
	}
}

func (t *letterText) payload(payload []byte, full bool) {
	shown, kind := payload, "text"
	if !utf8.Valid(payload) {
		kind = "base64 of bytes that are no text"
	}
	if !full && len(payload) > shownPayload {
		shown = payload[:shownPayload]
		if kind == "text" {
			for !utf8.Valid(shown) { // not within a character
				shown = shown[:len(shown)-1]
			}
		}
		kind += fmt.Sprintf("; the first %s, --full shows the rest", size(int64(len(shown))))
	}
	if len(payload) == 0 {
		t.WriteString("payload   empty\n")
		return
	}
	fmt.Fprintf(t, "payload   %s (%s)\n\n", size(int64(len(payload))), kind)
	if !utf8.Valid(payload) {
		t.WriteString(base64.StdEncoding.EncodeToString(shown) + "\n")
		return
	}
	for text := range strings.Lines(string(shown)) {
		fmt.Fprintf(t, "%s\n", visible(strings.ReplaceAll(strings.TrimRight(text, "\r\n"), "\t", "    ")))
	}
}

// payloadJSON is a payload for programs, the way penstock publish and enqueue
// read it: one of the two.
type payloadJSON struct {
	Payload       *string `json:"payload,omitempty"`
	PayloadBase64 []byte  `json:"payload_base64,omitempty"`
}

func payloadFor(payload []byte) payloadJSON {
	if !utf8.Valid(payload) {
		return payloadJSON{PayloadBase64: payload}
	}
	text := string(payload)
	return payloadJSON{Payload: &text}
}

// notNull is failures that JSON shows as [] rather than null.
func notNull(failures []penstock.Failure) []penstock.Failure {
	if failures == nil {
		return []penstock.Failure{}
	}
	return failures
}
