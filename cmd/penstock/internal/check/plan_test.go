package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Plans of servers of several versions.
func TestReadPlan(t *testing.T) {
	for _, c := range []struct {
		file                  string
		analyzed, inOrder     bool
		rows, pages, filtered float64
		indexes               string
	}{
		{"sort", true, false, 1000, 926, 10000, ""},
		{"index", true, true, 1000, 25, 0, "outbox_messages_waiting_idx"},
		{"deadprefix", true, true, 1, 664, 0, "events_ts_idx"},
		{"notpartial", true, true, 1000, 624, 40000, "outbox_at_idx"},
		{"estimated", false, true, 1000, 0, 0, "outbox_at_idx"},
		{"bitmap18", true, false, 14, 6, 1, "outbox_pkey"},
		{"partitions", true, true, 10, 5, 2, "a_ts_idx b_ts_idx"},
	} {
		t.Run(c.file, func(t *testing.T) {
			p := stored(t, c.file)
			if p.analyzed() != c.analyzed || inOrder(p) != c.inOrder || p.rows() != c.rows || p.pages() != c.pages || p.filtered() != c.filtered {
				t.Errorf("analyzed %v, in order %v, rows %v, pages %v, filtered %v; want %+v", p.analyzed(), inOrder(p), p.rows(), p.pages(), p.filtered(), c)
			}
			if got := strings.Join(p.indexes(), " "); got != c.indexes {
				t.Errorf("the indexes are %q", got)
			}
			golden(t, c.file+".txt", strings.Join(p.excerpt(), "\n")+"\n")
		})
	}
}

func stored(t *testing.T, name string) *plan {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := readPlan(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// golden compares with a file of testdata; with UPDATE_GOLDEN=1 it writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is\n%s\nwant\n%s", name, got, want)
	}
}

func TestReadPlanRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"":                                       "reading the plan",
		"[]":                                     "there is none",
		"{}":                                     "reading the plan",
		`[{"Plan": {}}]`:                         "there is none",
		`[{"Plan": {"Node Type": 1}}]`:           "reading the plan",
		`[{"Plan": {"Node Type": "Limit"}}, {}]`: "there is none",
		strings.Repeat(" ", maxPlanBytes) + "[{}]": "more than the limit",
	} {
		if p, err := readPlan([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40q: %+v, %v; want %q", text, p, err, says)
		}
	}
}

// A plan over many partitions is cut.
func TestExcerptIsShort(t *testing.T) {
	p := &plan{Root: node{Type: "Append"}}
	for range 100 {
		p.Root.Plans = append(p.Root.Plans, node{Type: "Seq Scan", Relation: "t"})
	}
	lines := p.excerpt()
	if len(lines) != excerptLines+1 || lines[excerptLines] != "… and 77 lines more" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

func FuzzReadPlan(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.json")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, err := readPlan(text); err == nil {
			_, _, _ = p.excerpt(), p.filtered(), inOrder(p)
		}
	})
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567.4: "1,234,567", -1000: "-1,000", -0.2: "0"} {
		if got := number(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0 bytes", 9999: "9,999 bytes", 10240: "10 KiB", 48 << 20: "48 MiB", 3 << 40: "3,072 GiB", 3 << 50: "3,072 TiB"} {
		if got := bytes(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}

// A read that exceeds the timeout although its index has the order is reported to scan dead rows.
// A read with a filter may have met others.
func TestEndlessRead(t *testing.T) {
	f := &facts{opts: Options{Timeout: 5 * time.Second}, reads: reads{pinned: stored(t, "estimated"), endless: true}}
	if found := findScan(f); len(found) != 1 || found[0].Code != CodeDeadPrefix || !strings.Contains(found[0].Title, "longer than 5s") {
		t.Errorf("%+v", found)
	}
	for _, file := range []string{"notpartial", "sort"} {
		f.reads.pinned = stored(t, file)
		if found := findScan(f); len(found) != 0 {
			t.Errorf("%s: %+v", file, found)
		}
	}
}
