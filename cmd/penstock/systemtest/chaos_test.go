package systemtest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
)

// A part of the longer `make chaos`: see lab/chaos.
func TestChaos(t *testing.T) {
	if found := chaos(t, time.Minute); len(found.Faults) < 5 {
		t.Errorf("few faults happened: %v", found.Faults)
	}
}

// The same on plain tables, with sequences that hand out blocks of numbers.
func TestChaosPortable(t *testing.T) {
	if found := chaos(t, time.Minute, "-profile", "portable"); len(found.Faults) < 5 {
		t.Errorf("few faults happened: %v", found.Faults)
	}
}

// The same in MariaDB with MyRocks: the server is killed and restarted together with everything
// else.
func TestChaosMySQL(t *testing.T) {
	if found := chaos(t, time.Minute, "-store", "mysql"); len(found.Faults) < 5 {
		t.Errorf("few faults happened: %v", found.Faults)
	}
}

// A synchronous standby is promoted while producers and relays work. No acknowledged commit is
// lost, and the relays continue without help.
func TestFailover(t *testing.T) {
	if found := chaos(t, 20*time.Second, "-failover"); found.Faults["primary_killed"] != 1 {
		t.Errorf("the primary was not killed: %v", found.Faults)
	}
}

// chaosSummary is the line that chaos writes.
type chaosSummary struct {
	Committed, Delivered, Takeovers int
	Jobs                            struct{ Committed, Done, Cancelled int }
	Faults                          map[string]int
}

// chaos runs the program and requires that it finds nothing, and leaves nothing.
func chaos(t *testing.T, duration time.Duration, args ...string) (summary chaosSummary) {
	t.Helper()
	testseed.Soak(t)
	t.Parallel() // it starts its own servers
	seed := os.Getenv("PENSTOCK_SEED")
	if seed == "" {
		seed = fmt.Sprint(rand.Uint32())
	}
	t.Logf("PENSTOCK_SEED=%s", seed)
	testserver.NeedPrograms(t)
	testserver.NeedClock(t)
	if slices.Contains(args, "mysql") {
		testserver.NeedMariaDB(t)
	}

	program := filepath.Join(t.TempDir(), "chaos")
	if err := buildTo(program, "../../../lab/chaos"); err != nil {
		t.Fatal(err)
	}
	// PostgreSQL runs as another user, who has no access to a folder of the test.
	temp, err := os.MkdirTemp("", "penstock-systemtest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	if err := os.Chmod(temp, 0o755); err != nil {
		t.Fatal(err)
	}
	run := exec.Command(program, append(args, "-penstock", binary, "-duration", duration.String(), "-seed", seed)...)
	run.Env = append(testserver.ProgramFolders(), "TMPDIR="+temp)
	o := startCommand(t, run).waitFor(duration + 10*time.Minute)
	t.Logf("%s%s", o.stderr, o.stdout)
	if o.code != 0 {
		t.Fatalf("exit code %d; to repeat: PENSTOCK_SEED=%s", o.code, seed)
	}
	if err := json.Unmarshal([]byte(o.stdout), &summary); err != nil {
		t.Fatalf("stdout is no JSON line: %v", err)
	}
	if jobs := summary.Jobs; summary.Committed == 0 || summary.Delivered != summary.Committed || jobs.Done == 0 || jobs.Done+jobs.Cancelled != jobs.Committed {
		t.Errorf("nothing was put to the test: %s", o.stdout)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
		t.Errorf("it left %v in its temporary folder, %v", left, err)
	}
	return summary
}
