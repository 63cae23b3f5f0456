package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/terminal"
)

// Each question gets its own answer, though the first one read ahead.
func TestAnswersToSeveralQuestions(t *testing.T) {
	a := &App{Stdin: strings.NewReader("n\ny\n"), Stderr: terminal.NewScrubber(io.Discard), Interactive: true}
	for _, want := range []bool{false, true} {
		if got, err := a.Agrees(t.Context(), Consent{}, "Sure?"); err != nil || got != want {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
	}
	if _, err := a.Agrees(t.Context(), Consent{Undone: "nothing was done"}, "Sure?"); err == nil || !strings.Contains(err.Error(), "nothing was done: no answer") {
		t.Errorf("got %v", err)
	}
}
