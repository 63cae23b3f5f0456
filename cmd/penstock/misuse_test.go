package main

import (
	"os"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/terminal"
)

func TestMisuse(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("PENSTOCK_DATABASE_URL", "")
	if err := os.WriteFile("bad.yaml", []byte("datbase_url: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args string
		want string
	}{
		{"stauts", "did you mean status?"},
		{"outbox crate", `"crate" is not a verb of penstock outbox: did you mean create?`},
		{"frobnicate", "see penstock --help"},
		{"status --frob", "unknown flag: --frob: see penstock status --help"},
		{"publish", "it takes OUTBOX: see penstock publish --help"},
		{"outbox create a b", "got 2 arguments, it takes NAME"},
		{"relay orders", "got 1 argument, it takes none: see penstock relay --help"},
		{"job cancel q", "got 1 argument, it takes QUEUE ID…: see penstock job cancel --help"},
		{"schedule set q", "got 1 argument, it takes QUEUE NAME --cron TEXT [PAYLOAD|-]"},
		{"publish o --key= --payload x", "--key is empty: give it a text, or leave it out"},
		{"status --every 0s --database-url sqlite:x.db", "--every is 0s"},
		{"status a b", "see penstock status --help"},
		{"status", "no database is given: pass --database-url"},
		{"migrate --database-url oracle://root@localhost/x", "postgres://"},
		{"migrate --database-url sqlite:", "names no file"},
		{"migrate --database-url sqlite:x.db --schema y", "schema"},
		{"status --config missing.yaml", "missing.yaml"},
		{"relay", "pass --outbox and --sink, or --config penstock.yaml"},
		{"relay --outbox o", "--outbox is given without --sink"},
		{"relay --sink stdout", "--sink is given without --outbox"},
		{"relay --outbox o --sink mqtt://x --database-url sqlite:x.db", "mqtt"},
		{"relay --outbox o --sink stdout --start yesterday", "write beginning or now"},
		{"relay --outbox o --sink stdout --log-level loud", "--log-level"},
		{"relay --outbox o --sink stdout --log-format xml", "--log-format"},
		{"tail o --start now --database-url sqlite:x.db", "add --follow"},
		{"tail o --start never --database-url sqlite:x.db", "write beginning or now"},
		{"publish o --header nonsense --database-url sqlite:x.db", "write name=value"},
		{"publish o --payload x --payload-file y --database-url sqlite:x.db", "use one of them"},
		{"publish o --payload-file missing --database-url sqlite:x.db", "missing"},
		{"publish o --batch -1 --database-url sqlite:x.db", "--batch is negative"},
		{"queue crate", `"crate" is not a verb of penstock queue: did you mean create?`},
		{"queue job", `"job" is not a verb of penstock queue: did you mean penstock job?`},
		{"queue create q --order random", "use fifo or lifo"},
		{"queue create q --max-attempts 0", "--max-attempts is 0"},
		{"queue set q", "nothing to set"},
		{"queue set q --max-running 0", `--max-running is "0": use 1 or more, or unlimited`},
		{"queue set q --dedup-window 0s", "--dedup-window is 0"},
		{"queue drop q", "pass --yes if you mean it"},
		{"enqueue", "see penstock enqueue --help"},
		{"enqueue q --key k", "--key is given without PAYLOAD"},
		{"enqueue q x --key=", "--key is empty"},
		{"enqueue q x --dedup-key=", "--dedup-key is empty"},
		{"enqueue q x --delay 1h --not-before 2999-01-01", "use one of them"},
		{"enqueue q x --not-before soon", `--not-before is "soon"`},
		{"enqueue q x -H nonsense", "write name=value"},
		{"enqueue q x -H a=1 -H b=2 -H a=3", "--header a is given twice: a header has one value"},
		{"publish o --payload x -H a=1 -H a=1", "--header a is given twice: a header has one value"},
		{"enqueue q --batch -1", "--batch is negative"},
		{"work q", "--exec is missing"},
		{"work q --exec true --concurrency 0", "--concurrency is 0"},
		{"work q --exec true --lease 999ms", "--lease is 999ms: use at least a second"},
		{"work q --exec true --timeout 0s", "--timeout is 0"},
		{"work q --exec true --output file", "use inherit or discard"},
		{"work q --exec true --database-url sqlite:x.db --log-level loud", "--log-level"},
		{"job cancel q", "see penstock job cancel --help"},
		{"schedule set q n", "--cron is missing"},
		{"demo --producers 0", "--producers is 0"},
		{"demo --rollback 1.5", "--rollback is 1.5"},
		{"demo --rollback NaN", "--rollback is NaN"},
		{"demo --limit -1", "--limit is -1"},
		{"demo --patience 0s", "--patience is 0s"},
		{"demo --csv missing.csv", "--csv"},
		{"demo --csv bad.yaml", "line 1: the header has no column scheduled_departure"},
		{"demo --sink mqtt://x", "mqtt"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			invoke(t, strings.Fields(tc.args)...).wants(t, terminal.ExitUsage, tc.want)
		})
	}
	t.Run("configuration", func(t *testing.T) {
		o := invoke(t, "status", "--config", "bad.yaml")
		if o.code != terminal.ExitUsage || !strings.Contains(o.stderr, "bad.yaml:1:1") {
			t.Errorf("exit code %d, stderr %q", o.code, o.stderr)
		}
	})
}
