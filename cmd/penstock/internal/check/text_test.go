package check

import (
	"encoding/json"
	"strings"
	"testing"
)

// A report with everything that a report can have.
func whole() Report {
	r := Report{
		Table:   Table{Schema: "public", Name: "outbox\x1b[2J", Server: "18.1", Rows: 2_000_000, DeadRows: 41_000, Bytes: 700 << 20, IndexBytes: 90 << 20, TotalBytes: 800 << 20},
		Reading: "select 1",
		Findings: []Finding{
			{Severity: Note, Code: CodeCommitOrder, Title: "the order is another", Detail: "As it is."},
			{Severity: Warning, Code: CodeMissingIndex, Title: "no index gives the waiting rows in the order of a column with a name that is much longer than a line has room for",
				Detail: strings.Repeat("Each read of a batch goes over the table and sorts. ", 5),
				Evidence: Evidence{
					Figures: []Figure{{"rows returned", 1000, Rows}, {"pages touched", 92_100, Pages}, {"time", 1.5, Seconds}, {"age", 3725, Seconds}, {"largest", 7421, Bytes}, {"HOT among them", 12.4, Percent}, {"scale factor", 0.2, ""}},
					Plan:    []string{"Limit  (rows=1,000)", "  ->  Sort  (rows=1,000)"}},
				Fix: []Statement{
					{SQL: `create index concurrently "i" on "public"."outbox" ("at")`, Concurrently: true, Risk: "reads the table twice, and waits for transactions that are open", Creates: &Index{"public", "i"}},
					{SQL: `create index concurrently "i" on "public"."outbox" ("at") include ("payload")`, Concurrently: true, Risk: strings.Repeat("an insert may fail ", 8), Alternative: true}}},
			{Severity: Critical, Code: CodeUnlogged, Title: "the table is unlogged: a crash empties it", Detail: "Messages are lost.", Fix: []Statement{{SQL: "alter table t set logged"}}},
		},
		Unseen: []Unseen{{"standbys", "permission denied", "grant pg_read_all_stats"}, {What: "the plan of the read", Why: "it took longer than 5s"}},
	}
	r.sort()
	return r
}

func TestText(t *testing.T) {
	for name, r := range map[string]Report{
		"report.txt":  whole(),
		"nothing.txt": {Table: Table{Schema: "public", Name: "outbox", Server: "14.2", Rows: -1, DeadRows: -1}},
		"clean.txt": {Table: Table{Schema: "public", Name: "outbox", Server: "15.1", Rows: 1, Bytes: 8192, IndexBytes: 16384},
			Findings: []Finding{{Severity: Note, Code: CodeCommitOrder, Title: "the order is another", Detail: "As it is."}}},
	} {
		var b strings.Builder
		if err := r.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		golden(t, name, b.String())
		if strings.ContainsRune(b.String(), '\x1b') {
			t.Errorf("%s: a terminal would obey a table's name", name)
		}
	}
}

// The JSON has everything.
func TestJSON(t *testing.T) {
	text, err := json.MarshalIndent(whole(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json.txt", string(text)+"\n")
}

func TestSeverity(t *testing.T) {
	r := whole()
	if r.Clean() || r.Count(Warning) != 1 || r.Findings[0].Severity != Critical {
		t.Errorf("%d warnings, first %v", r.Count(Warning), r.Findings[0].Severity)
	}
	if r = (Report{}); !r.Clean() {
		t.Error("nothing is not clean")
	}
}
