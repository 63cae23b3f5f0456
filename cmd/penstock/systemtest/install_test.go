package systemtest

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/test/testserver"
)

// An administrator who copies the page gets roles with which one relay delivers the producer's messages, while another is on standby.
// The server is a private one: roles belong to the whole server, and doctor checks its settings.
func TestInstall(t *testing.T) {
	t.Parallel()
	psql, err := exec.LookPath("psql")
	if err != nil {
		t.Skip("there is no psql")
	}
	admin := testserver.StartPostgres(t, "fsync = on", "full_page_writes = on", "synchronous_commit = on").URL
	u, err := url.Parse(admin)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/start/install.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(page), "@db:5432/", "@"+u.Host+"/")

	w := newWalk(t, admin)
	sh := func(block string) {
		t.Helper()
		var commands []string
		for line := range strings.Lines(block) {
			if strings.HasPrefix(line, "export ") {
				w.exports = append(w.exports, strings.TrimSpace(line))
			} else {
				commands = append(commands, line)
			}
		}
		file := filepath.Join(w.dir, "block.sh")
		if err := os.WriteFile(file, []byte("set -e\n"+strings.Join(commands, "")), 0o600); err != nil {
			t.Fatal(err)
		}
		if o := w.start("sh block.sh").wait(); o.code != 0 {
			t.Fatalf("exit code %d: %s\n%s%s", o.code, block, o.stdout, o.stderr)
		}
	}
	var relays []*process
	for _, b := range regexp.MustCompile("(?ms)^```(sh|psql)\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		block := b[2]
		if b[1] == "psql" {
			file := filepath.Join(w.dir, "block.sql")
			if err := os.WriteFile(file, []byte(block), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), psql, "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-f", file, admin).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			continue
		}
		switch {
		case strings.HasPrefix(block, "penstock publish "):
			for range 2 {
				relays = append(relays, w.start("penstock relay --config penstock.yaml"))
			}
			eventually(t, "a relay on standby", func() bool {
				return strings.Contains(relays[0].stderr.String()+relays[1].stderr.String(), "standing by")
			})
		case strings.HasPrefix(block, "penstock subscription drop "): // the page's text about a trial
			trial := w.start("penstock relay --outbox orders --sink stdout")
			trial.await("the lease", func() bool { return strings.Contains(trial.stderr.String(), "took the lease") })
			trial.signal(syscall.SIGINT)
			trial.wait()
		}
		sh(block)
	}
	eventually(t, "the message", func() bool {
		return strings.Contains(relays[0].stdout.String()+relays[1].stdout.String(), `"topic":"order.placed"`)
	})
	if o := w.start("penstock status --json").wait(); strings.Contains(o.stdout, `"default"`) || !strings.Contains(o.stdout, `"billing"`) {
		t.Errorf("after the page: %s", o.stdout)
	}
	for _, r := range relays {
		r.signal(syscall.SIGINT)
		r.wait()
	}
}
