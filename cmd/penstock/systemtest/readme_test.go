package systemtest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/test/testserver"
)

const (
	readme         = "../../../README.md"
	gettingStarted = "../../../docs/start/getting-started.md"
)

// A user who follows the walk-through of getting-started.md in an empty folder sees at each step
// the text behind its arrow, on either database.
func TestGettingStarted(t *testing.T) {
	const postgres, sqlite, rabbit = "postgres://postgres@localhost/shop", "sqlite:shop.db", "amqp://guest:guest@localhost/"
	_, block, _ := strings.Cut(docsBlocks(t, gettingStarted, "Try it on your servers", "sh")[0], "\n") // git clone
	broker := testserver.RabbitMQURL(t)
	for name, database := range map[string]string{
		"postgres": testserver.Database(t, testserver.PostgresURL(t)),
		"sqlite":   sqlite,
	} {
		t.Run(name, func(t *testing.T) {
			deleteQueue(t, broker, "orders") // it may not exist
			t.Cleanup(func() { deleteQueue(t, broker, "orders") })
			w := newWalk(t, database)
			for _, said := range []string{postgres, sqlite, rabbit} {
				if !strings.Contains(block, said) {
					t.Fatalf("the page does not say %s any more", said)
				}
			}
			w.follow(strings.NewReplacer(postgres, database, rabbit, broker).Replace(block))
			if n := queueLength(t, broker, "orders"); n != 1 {
				t.Errorf("the queue has %d messages, want the one that was published", n)
			}
		})
	}
}

// Its commands for queues.
func TestGettingStartedWithQueues(t *testing.T) {
	for name, database := range map[string]string{
		"postgres": testserver.Database(t, testserver.PostgresURL(t)),
		"sqlite":   "sqlite:shop.db",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWalk(t, database)
			w.follow("export PENSTOCK_DATABASE_URL='" + database + "'\npenstock migrate\n" + docsBlocks(t, gettingStarted, "Queues", "sh")[0])
		})
	}
}

// The statements of getting-started.md run unchanged, with psql's variables filled in.
func TestGettingStartedStatements(t *testing.T) {
	t.Parallel()
	database := ordersDatabase(t)
	execSQL(t, database, "select penstock.create_queue('emails')")
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	run := func(t *testing.T, statements string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), statements, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Errorf("%v:\n%s", err, statements)
		}
	}
	count := func(t *testing.T, query string) (n int) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}

	t.Run("publishing", func(t *testing.T) {
		run(t, docsBlocks(t, gettingStarted, "Publish from your code", "sql")[0])
		if n := count(t, "select count(*) from penstock.orders"); n != 2 {
			t.Errorf("%d messages are in the outbox, want 2", n)
		}
	})
	t.Run("inbox", func(t *testing.T) {
		run(t, docsBlocks(t, gettingStarted, "Publish from your code", "sql")[1])
		if n := count(t, "select count(*) where penstock.inbox('billing', 'the message id')"); n != 0 {
			t.Error("the message is new a second time")
		}
	})
	t.Run("queue", func(t *testing.T) {
		claim, settle, ok := strings.Cut(docsBlocks(t, gettingStarted, "Queues", "sql")[0], ` \gset`)
		before, claim, isLast := strings.Cut(claim, "\n\nselect l[1]")
		if !ok || !isLast {
			t.Fatalf("it does not go on with a claim and \\gset:\n%s", claim)
		}
		run(t, before)
		if n := count(t, "select ready::int from penstock.queue_status('emails')"); n != 3 {
			t.Fatalf("%d jobs are left for the claim, want 3 of 5", n)
		}
		rows, err := conn.Query(t.Context(), "select l[1]"+claim)
		if err != nil {
			t.Fatal(err)
		}
		leases, err := pgx.CollectExactlyOneRow(rows, pgx.RowToMap)
		if err != nil {
			t.Fatal(err)
		}
		for name, lease := range leases {
			settle = strings.ReplaceAll(settle, ", :"+name, fmt.Sprintf(", %d", lease))
		}
		run(t, settle)
		if n := count(t, "select count(*) from penstock._dead_job"); n != 1 {
			t.Errorf("%d dead letters, want the last of the claim", n)
		}
		if n := count(t, "select running::int from penstock.queue_status('emails')"); n != 0 {
			t.Errorf("%d jobs still run", n)
		}
	})
}

// The README's commands print the text behind their arrows.
func TestReadmeCommands(t *testing.T) {
	block := docsBlocks(t, readme, "Try it", "sh")[0]
	_, block, _ = strings.Cut(block, "\n") // git clone
	newWalk(t, "sqlite:app.db").follow(block)
}

// The README's statements run unchanged. Its program is examples/orders, which has the lines of the excerpt in their
// order.
func TestReadme(t *testing.T) {
	t.Parallel()
	database := ordersDatabase(t)
	execSQL(t, database, "select penstock.create_queue('emails'); create table shop_order (customer text, total int)")
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	statements := docsBlocks(t, readme, "Use it from your application", "sql")[0]
	if _, err := conn.Exec(t.Context(), statements+"select * from penstock.dequeue('emails')", pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%v:\n%s", err, statements)
	}

	source, err := os.ReadFile("../../../examples/orders/main.go")
	if err != nil {
		t.Fatal(err)
	}
	rest := strings.Split(string(source), "\n")
	for line := range strings.Lines(docsBlocks(t, readme, "Use it from your application", "go")[0]) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		i := slices.IndexFunc(rest, func(l string) bool { return strings.TrimSpace(l) == line })
		if i < 0 {
			t.Fatalf("examples/orders/main.go has not, or not there: %s", line)
		}
		rest = rest[i+1:]
	}
	programs, err := buildExamples()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(programs + "orders")
	cmd.Env = append(os.Environ(), "PENSTOCK_DATABASE_URL="+database)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "mail to ann, attempt 1\n" {
		t.Errorf("it prints %q: %v", line, err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	for _, table := range []string{"shop_order", "penstock.orders where payload = convert_to('{\"total\": 10}', 'UTF8')"} {
		var n int
		if err := conn.QueryRow(t.Context(), "select count(*) from "+table).Scan(&n); err != nil || n != 2 {
			t.Errorf("%s has %d rows (%v), want that of the statements and that of the program", table, n, err)
		}
	}
}

// docsBlocks are the code blocks of a language under a heading of a file.
func docsBlocks(t *testing.T, file, heading, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no %q", file, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for _, after := range strings.Split(section, "```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(after, "\n```")
		blocks = append(blocks, block)
	}
	if len(blocks) == 0 {
		t.Fatalf("%q has no block of %s", heading, language)
	}
	return blocks
}

// walk is a shell in an empty folder. Comments of commands say their output:
type walk struct {
	t        *testing.T
	dir      string
	database string
	exports  []string
	relays   int // commands that have run, each with a separate subscription
}

// newWalk begins one; the file of SQLite is in its folder.
func newWalk(t *testing.T, database string) *walk {
	w := &walk{t: t, dir: t.TempDir(), database: database}
	if file, ok := strings.CutPrefix(database, "sqlite:"); ok {
		w.database = "sqlite:" + filepath.Join(w.dir, file)
	}
	return w
}

var arrow = regexp.MustCompile(`\s# (?:(until Ctrl-C) )?→ (.*?)(, until Ctrl-C)?$`)

func (w *walk) follow(block string) {
	w.t.Helper()
	for line := range strings.Lines(block) {
		line = strings.TrimSpace(line)
		if build := "make build && "; strings.HasPrefix(line, build) {
			line = strings.ReplaceAll(strings.TrimPrefix(line, build), "$PWD/bin", filepath.Dir(binary))
		}
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "export "):
			w.exports = append(w.exports, line)
		default:
			w.step(line)
		}
		if w.t.Failed() {
			return
		}
	}
}

func (w *walk) step(line string) {
	w.t.Helper()
	var promise []string
	found := arrow.FindStringSubmatch(line)
	if found != nil {
		promise = strings.Split(found[2], "…")
	}
	w.t.Logf("$ %s", line)
	if strings.HasPrefix(line, "penstock relay ") {
		w.relays++
	}
	p := w.start(line)
	switch {
	case found != nil && found[3] != "":
		p.await(strings.Join(promise, "…"), func() bool { return inOrder(p.stdout.String(), promise) })
		if w.relays > 0 {
			w.settled()
			w.housekeeping()
		}
		p.signal(syscall.SIGINT)
	case found != nil && found[1] != "":
		w.settled()
		p.signal(syscall.SIGINT)
	}
	o := p.wait()
	if o.code != 0 {
		w.t.Errorf("exit code %d: %s", o.code, o.stderr)
	}
	shown := o.stdout
	if found != nil && found[1] != "" {
		shown = o.stderr
	}
	if !inOrder(shown, promise) {
		w.t.Errorf("%s\nis to show\n%s\nand shows\n%s", line, strings.Join(promise, "…"), shown)
	}
}

// settled waits until each relay's subscription exists and has no backlog.
func (w *walk) settled() {
	w.t.Helper()
	backlog := regexp.MustCompile(`"backlog":(\d+)`)
	eventually(w.t, "an empty backlog", func() bool {
		found := backlog.FindAllStringSubmatch(w.start("penstock status --json").wait().stdout, -1)
		return len(found) == w.relays && !slices.ContainsFunc(found, func(of []string) bool { return of[1] != "0" })
	})
}

// housekeeping maintains the outbox as a running relay does, until an outbox without retention is
// empty.
func (w *walk) housekeeping() {
	w.t.Helper()
	const other = "keeps_nothing"
	ctx := w.t.Context()
	store, err := drivers.OpenStore(ctx, w.database, "", nil)
	check := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	check(err)
	defer store.Close()
	check(store.CreateOutbox(ctx, other))
	check(store.Publish(ctx, other, penstock.Message{Topic: "t"}))
	source, err := store.Subscribe(ctx, driver.Subscribe{Outbox: other, Subscription: other, Holder: other})
	check(err)
	batch, err := source.Fetch(ctx, driver.Limit{Messages: 1, Bytes: 1 << 10})
	check(err)
	check(source.Settle(ctx, batch.Number, driver.Settled{Batch: batch}))
	check(source.Close(ctx))
	eventually(w.t, "an empty outbox", func() bool {
		check(store.Maintain(ctx, "orders"))
		check(store.Maintain(ctx, other))
		again, err := store.Subscribe(ctx, driver.Subscribe{Outbox: other, Subscription: "new", Ephemeral: true})
		check(err)
		defer again.Close(ctx)
		left, err := again.Fetch(ctx, driver.Limit{Messages: 1, Bytes: 1 << 10})
		check(err)
		return len(left.Messages) == 0
	})
	check(store.DropOutbox(ctx, other))
}

func (w *walk) start(command string) *process {
	w.t.Helper()
	cmd := exec.Command("sh", "-c", strings.Join(append(slices.Clone(w.exports), "exec "+command), "\n"))
	cmd.Dir = w.dir
	cmd.Env = []string{"PATH=" + filepath.Dir(binary) + ":" + os.Getenv("PATH")}
	return startCommand(w.t, cmd)
}

// inOrder reports whether the parts are in text, one after another.
func inOrder(text string, parts []string) bool {
	for _, part := range parts {
		_, after, ok := strings.Cut(text, strings.TrimSpace(part))
		if !ok {
			return false
		}
		text = after
	}
	return true
}

// Each number in the README is on the page that it comes from, and its lines are short enough to read
// without scrolling.
func TestReadmeFigures(t *testing.T) {
	page, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../../../docs/reference/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	_, figures, ok := strings.Cut(string(page), "\n## Performance\n")
	figures, _, ended := strings.Cut(figures, "\n## ")
	numbers := regexp.MustCompile(`\d[\d,.]*\d|\d`).FindAllString(figures, -1)
	if !ok || !ended || len(numbers) < 10 {
		t.Fatalf("%d figures under Performance", len(numbers))
	}
	for _, n := range numbers {
		if !regexp.MustCompile(`(^|[^\d,.])` + regexp.QuoteMeta(n) + `([^\d]|$)`).Match(source) {
			t.Errorf("docs/reference/performance.md has no %s", n)
		}
	}
	if lines := strings.Split(strings.TrimSpace(string(page)), "\n"); len(lines) > 120 {
		t.Errorf("%d lines, want 120 at most", len(lines))
	}
	for line := range strings.Lines(string(page)) {
		if len([]rune(line)) > 161 {
			t.Errorf("over 160 characters: %s", line)
		}
	}
}
