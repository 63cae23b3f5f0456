package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The report lists passed tests, failed ones and why, and no password.
func TestReport(t *testing.T) {
	t.Parallel()
	events := `# a line that is none
{"Action":"run","Package":"github.com/penstock/penstock/store/portable","Test":"TestA"}
{"Action":"output","Package":"github.com/penstock/penstock/store/portable","Test":"TestA","Output":"postgres://app:hunter2@db/x: no\n"}
{"Action":"fail","Package":"github.com/penstock/penstock/store/portable","Test":"TestA"}
{"Action":"output","Package":"github.com/penstock/penstock/store/portable","Test":"TestB","Output":"fine\n"}
{"Action":"pass","Package":"github.com/penstock/penstock/store/portable","Test":"TestB"}
{"Action":"skip","Package":"github.com/penstock/penstock/store/portable","Test":"TestC"}
`
	progress := strings.Builder{}
	r, err := read(strings.NewReader(events), &progress, 1)
	if err != nil {
		t.Fatal(err)
	}
	if want := "FAIL store/portable TestA\n0 passed, 1 failed, 0 skipped; store/portable TestA\n1 passed, 1 failed, 0 skipped; store/portable TestB\n"; !strings.HasPrefix(progress.String(), want) {
		t.Errorf("said %q, want %q", progress.String(), want)
	}
	r.Server = "PostgreSQL 15.12-YB-2025.1.0.0-b0"
	text, data := filepath.Join(t.TempDir(), "engine.txt"), filepath.Join(t.TempDir(), "engine.json")
	if err := r.write(text, data); err != nil {
		t.Fatal(err)
	}
	said, err := os.ReadFile(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"-YB-2025.1", "1 passed, 1 failed, 1 skipped", "FAILED store/portable TestA\n    postgres://app@db/x: no\n", "SKIPPED store/portable TestC", "    store/portable TestB\n", "# a line that is none"} {
		if !strings.Contains(string(said), want) {
			t.Errorf("there is no %q in\n%s", want, said)
		}
	}
	raw, err := os.ReadFile(data)
	if err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(raw, &back); err != nil || len(back.Failed) != 1 || back.Failed[0].Test != "store/portable TestA" || back.Server != r.Server {
		t.Errorf("%v: %+v", err, back)
	}
	if strings.Contains(string(said)+string(raw), "hunter2") {
		t.Error("a password is shown")
	}
}

// A page gets a row for an engine, in place of the one that was there.
func TestTable(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "engines.md")
	if err := os.WriteFile(page, []byte("Before.\n"+tableBegins+tableEnds+"After.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	skipped := func(why string) result {
		return result{"TestX", []string{"=== RUN   TestX", "    x_test.go:12: " + why, "--- SKIP: TestX (0.00s)"}}
	}
	for _, r := range []report{
		{Server: "RabbitMQ 4.0 4.0.5", Seconds: 30, Passed: []string{"TestA", "TestB"}, Skipped: []result{skipped("too long"), skipped("no a|b: set A, or B; install it"), skipped("too long"), {"TestY", nil}}},
		{Server: "MySQL 9 9.7.4", Seconds: 6},
		{Server: "RabbitMQ 4.0 4.0.6", Seconds: 60, Failed: []result{{}}, Broken: []string{"?"}},
		{Server: "RabbitMQ 4.0 4.0.5", Seconds: 30, Passed: []string{"TestA", "TestB"}, Skipped: []result{skipped("too long"), skipped("no a|b: set A, or B; install it"), skipped("too long"), {"TestY", nil}}},
		{Server: "RabbitMQ 4.3 4.3.6", Failed: []result{{Test: "p TestA/B"}, {Test: "p TestA"}, {Test: "p "}, {Test: "q "}}, Broken: []string{"?"}},
	} {
		if err := r.addTo(page, "0123456"); err != nil {
			t.Fatal(err)
		}
	}
	want := "Before.\n" + tableBegins + tableHead +
		"| MySQL 9 | 9.7.4 | 0 | 0 | 0 | 0.1 | 0123456 |\n" +
		"| RabbitMQ 4.0 | 4.0.5 | 2 | 4: 2 too long, 1 no a/b, 1 without a reason | 0 | 0.5 | 0123456 |\n" +
		"| RabbitMQ 4.3 | 4.3.6 | 0 | 0 | 3 | 0.0 | 0123456 |\n" + tableEnds + "After.\n"
	if got, err := os.ReadFile(page); err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}

// The table that is published has the form that is written, and rows of the script's engines.
func TestPublishedTable(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/reference/engines.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("../../../../script/test-engines.sh")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, begins := strings.Cut(string(page), tableBegins+tableHead)
	table, _, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		t.Fatal("the page has no table of engines, or the table has another head")
	}
	row := regexp.MustCompile(`^\| ([^|]+) \| [0-9][0-9a-z.]* \| [1-9][0-9]* \| (?:0|[1-9][0-9]*: [^|]+) \| [0-9]+ \| [0-9]+\.[0-9] \| [0-9a-f]{7,} \|$`)
	var engines []string
	for line := range strings.Lines(table) {
		m := row.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			t.Fatalf("not a row of a clean commit: %s", line)
		}
		engines = append(engines, m[1])
	}
	var known []string
	for _, m := range regexp.MustCompile(`(?m)^[a-z]+-[0-9.]+\|([^|]+)\|`).FindAllStringSubmatch(string(script), -1) {
		known = append(known, m[1])
	}
	for _, engine := range engines {
		if !slices.Contains(known, engine) {
			t.Errorf("the page has a row of %s, the script knows %q", engine, known)
		}
	}
}
