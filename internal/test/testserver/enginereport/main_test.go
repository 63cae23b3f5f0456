package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The report says what passed, what failed and why, and no password.
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
	r, err := read(strings.NewReader(events), io.Discard)
	if err != nil {
		t.Fatal(err)
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
