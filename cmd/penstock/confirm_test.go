package main

import (
	"io"
	"log/slog"
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

// Workers are relays of their own. Nothing is connected to before they run.
func TestOneRelayPerWorker(t *testing.T) {
	t.Chdir(t.TempDir())
	for workers, want := range map[string]int{"0": 1, "1": 1, "3": 3} {
		jobs, err := jobsOf(t, "--adopt", "dotnet", "--workers", workers, "--sink", "discard")
		if err != nil {
			t.Fatal(err)
		}
		a := &app{databaseURL: "postgres://127.0.0.1:1/nowhere", stderr: &scrubber{w: io.Discard}, getenv: func(string) string { return "" }}
		all, end, err := a.runners(t.Context(), &jobs[0], nil, slog.New(slog.DiscardHandler), nil)
		if err != nil || len(all) != want {
			t.Errorf("--workers %s: %d relays, %v; want %d", workers, len(all), err, want)
			continue
		}
		end()
	}
}
