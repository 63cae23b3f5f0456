package main

import (
	"io"
	"strings"
	"testing"
)

// Each question gets the answer that was meant for it, though the first one read
// ahead.
func TestAnswersToSeveralQuestions(t *testing.T) {
	a := &app{stdin: strings.NewReader("n\ny\n"), stderr: &scrubber{w: io.Discard}, interactive: true}
	for _, want := range []bool{false, true} {
		if got, err := a.agrees(t.Context(), consent{}, "Sure?"); err != nil || got != want {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
	}
	if _, err := a.agrees(t.Context(), consent{undone: "nothing was done"}, "Sure?"); err == nil || !strings.Contains(err.Error(), "nothing was done: no answer") {
		t.Errorf("got %v", err)
	}
}
