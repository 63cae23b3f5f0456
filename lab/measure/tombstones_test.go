package measure

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestTombstones(t *testing.T) {
	db := database(t)
	r, err := Tombstones(t.Context(), TombstonesConfig{Setup: db, Pin: true, Events: 4000, Fetches: 7})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cases) != 2 || r.WorstRatio <= 0 {
		t.Fatalf("got %+v", r)
	}
	for i, c := range r.Cases {
		if c.Pinned != (i > 0) {
			t.Errorf("case %d is pinned: %v", i, c.Pinned)
		}
		for who, e := range map[string]NextEvent{"naive": c.Naive, "last_ts": c.LastTS, "penstock": c.Penstock} {
			if e.Fetches != 7 || e.MS <= 0 || e.FreshMS <= 0 || e.Ratio <= 0 || e.FirstPages < 1 || e.Pages < 1 || e.FreshPages < 1 {
				t.Errorf("case %d, %s: %+v", i, who, e)
			}
		}
		// The rows that a naive scan walks over can be counted, whatever the machine does.
		if c.Pinned && c.Naive.Pages < 3*c.Naive.FreshPages {
			t.Errorf("case %d: the naive fetch met no tombstones: %+v", i, c.Naive)
		}
		if c.LastTS.Pages > c.LastTS.FreshPages+3 {
			t.Errorf("case %d: the fetch behind the last timestamp met tombstones: %+v", i, c.LastTS)
		}
	}
}

func TestTombstonesInterrupted(t *testing.T) {
	db := database(t)
	ctx, cancel := context.WithCancel(t.Context())
	db.Progress = func(text string) {
		if strings.Contains(text, "deleting") {
			cancel()
		}
	}
	if _, err := Tombstones(ctx, TombstonesConfig{Setup: db, Events: 1000, Fetches: 5}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestParseExplain(t *testing.T) {
	got, err := parseExplain([]byte(`[{"Plan": {"Node Type": "Limit", "Shared Hit Blocks": 7, "Shared Read Blocks": 2, "Plans": [{"Shared Hit Blocks": 7}]}, "Planning": {"Shared Hit Blocks": 100}, "Execution Time": 0.25}]`))
	if err != nil || got != 9 {
		t.Errorf("got %d, %v", got, err)
	}
	for _, bad := range []string{"", "[]", "{}"} {
		if _, err := parseExplain([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
