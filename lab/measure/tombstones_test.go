package measure

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestTombstones(t *testing.T) {
	db := database(t)
	r, err := Tombstones(t.Context(), TombstonesConfig{Database: db, Pin: PinPostgres(db.URL), Events: 4000, Fetches: 7, Longest: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if r.Events != 4000 || len(r.Cases) != 4 || r.WorstRatio <= 0 {
		t.Fatalf("got %+v", r)
	}
	for i, c := range r.Cases {
		if c.Deleted != []string{"prefix", "scattered"}[i%2] || c.Pinned != (i > 1) {
			t.Errorf("case %d is %s, pinned %v", i, c.Deleted, c.Pinned)
		}
		for who, e := range map[string]NextEvent{"naive": c.Naive, "last_ts": c.LastTS, "penstock": c.Penstock} {
			if e.Fetches != 7 || e.MS <= 0 || e.FreshMS <= 0 || e.FirstMS <= 0 || e.Ratio <= 0 {
				t.Errorf("case %d, %s: %+v", i, who, e)
			}
			for _, p := range []Pages{e.Pages, e.FreshPages, e.FirstPages} {
				// EXPLAIN leaves out what opening an index reads.
				if p.Index < 1 || p.Heap < 1 || p.All+3 < p.Index+p.Heap {
					t.Errorf("case %d, %s: pages %+v", i, who, p)
				}
			}
		}
		// The rows that a naive scan walks over can be counted, whatever the machine does.
		if c.Pinned && c.Naive.Pages.All < 3*c.Naive.FreshPages.All {
			t.Errorf("case %d: the naive fetch met no tombstones: %+v", i, c.Naive)
		}
		if c.LastTS.Pages.All > c.LastTS.FreshPages.All+3 {
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
	if _, err := Tombstones(ctx, TombstonesConfig{Database: db, Events: 1000, Fetches: 5, Longest: time.Minute}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestParseExplain(t *testing.T) {
	got, err := parseExplain([]byte(`[{"Plan": {"Node Type": "Limit", "Shared Hit Blocks": 7, "Shared Read Blocks": 2, "Plans": [{"Shared Hit Blocks": 7}]}, "Planning": {"Shared Hit Blocks": 100}, "Execution Time": 0.25}]`))
	if err != nil || got.Plan.Hit != 7 || got.Plan.Read != 2 || got.ExecutionMS != 0.25 {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{"", "[]", "{}"} {
		if _, err := parseExplain([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
