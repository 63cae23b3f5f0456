package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/queuetest"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/work"
)

// planned are languages whose missing folder is logged.
var planned = []string{"go", "java", "python", "typescript"}

// language is one that has a folder, or should.
type language struct {
	Name    string `json:"language"`
	Passed  int    `json:"passed"`
	Failed  int    `json:"failed"`
	LeftOut string `json:"left_out,omitempty"`

	build   sync.Once
	wrong   string
	mu      sync.Mutex
	program *program
}

var languages []*language

func TestMain(m *testing.M) {
	names := slices.Clone(planned)
	scripts, _ := filepath.Glob("../*/conformance.sh")
	for _, s := range scripts {
		names = append(names, filepath.Base(filepath.Dir(s)))
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if only := os.Getenv("PENSTOCK_CLIENTS"); only == "" || slices.Contains(strings.Fields(only), name) {
			languages = append(languages, &language{Name: name})
		}
	}
	code := postgrestest.Run(m)
	for _, l := range languages {
		if l.program != nil {
			l.program.kill()
		}
		if line, err := json.Marshal(l); err == nil && (l.Passed+l.Failed > 0 || l.LeftOut != "") {
			fmt.Println(string(line))
		}
	}
	os.Exit(code)
}

// ready builds the program of a language, and skips the test if that is not possible.
func (l *language) ready(t testing.TB) {
	t.Helper()
	testserver.PostgresURL(t)
	l.build.Do(func() {
		script := filepath.Join("..", l.Name, "conformance.sh")
		if _, err := os.Stat(script); err != nil {
			l.LeftOut = "there is no clients/" + l.Name + "/conformance.sh"
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, script, "--build").CombinedOutput()
		var exit *exec.ExitError
		switch out = bytes.TrimSpace(out); {
		case errors.As(err, &exit) && exit.ExitCode() == 77:
			l.LeftOut = string(out[bytes.LastIndexByte(out, '\n')+1:])
		case err != nil:
			l.wrong = fmt.Sprintf("%s --build: %v\n%s", script, err, out)
		}
	})
	switch {
	case l.LeftOut != "":
		t.Skipf("%s is left out: %s", l.Name, l.LeftOut)
	case l.wrong != "":
		l.count(t)
		t.Fatal(l.wrong)
	}
}

// count counts the test's outcome.
func (l *language) count(t testing.TB) {
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		switch {
		case t.Failed():
			l.Failed++
		case !t.Skipped():
			l.Passed++
		}
	})
}

// goal is one test of one language: a database, the Go store on it, and a program.
type goal struct {
	testing.TB
	ctx   context.Context
	url   string
	store *remoteStore
}

// each runs a test for each language, with a separate database, and the program that all tests share.
func each(t *testing.T, run func(g *goal, l *language)) {
	t.Parallel()
	for _, l := range tested() {
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			l.count(t)
			run(newGoal(t, l.shared(t)), l)
		})
	}
}

// eachAlone starts a program for each test, which ends it.
func eachAlone(t *testing.T, run func(g *goal, l *language)) {
	t.Parallel()
	for _, l := range tested() {
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			l.ready(t)
			l.count(t)
			run(newGoal(t, start(t, l.Name)), l)
		})
	}
}

// tested are the languages of each test: all in the long form, otherwise all but Go. Go's client is the store, which
// passes its own suites. Its program still meets the others in TestRescue and TestKeysAndBarriersAcrossLanguages.
func tested() []*language {
	if testseed.Long() {
		return languages
	}
	return slices.DeleteFunc(slices.Clone(languages), func(l *language) bool { return l.Name == "go" })
}

// shared is the program of a language that lives as long as the tests. Starting one costs more than most tests.
func (l *language) shared(t testing.TB) *program {
	t.Helper()
	l.ready(t)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.program == nil {
		l.program = launch(t, l.Name)
	}
	return l.program
}

func newGoal(t testing.TB, p *program) *goal {
	t.Helper()
	return goalOn(t, p, postgrestest.Database(t))
}

func goalOn(t testing.TB, p *program, url string) *goal {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	t.Cleanup(cancel)
	g := &goal{TB: t, ctx: ctx, url: url}
	g.store = &remoteStore{Store: openStore(t, g.url), c: p.open(t, g.url)}
	t.Cleanup(func() {
		if said := p.said.String(); t.Failed() && said != "" {
			t.Logf("the last that %s wrote to standard error:\n%s", p.hello.Language, said)
		}
	})
	return g
}

// The parts of the queues' suite that are about producing and working.
func TestQueues(t *testing.T) {
	t.Parallel()
	for _, l := range tested() {
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			p := l.shared(t)
			queuetest.Run(t, queuetest.Harness{
				OpenCreated: func(t testing.TB, order penstock.QueueOrder) queuetest.Instance {
					l.count(t)
					return queueInstance(t, p, order)
				},
				Features: queuetest.Features{ConcurrentWriters: true, Options: true, OptionsInServer: true, Unique: true, Barriers: true, WaitingMessages: true},
				Only:     queuetest.ByAClient,
				Groups:   []string{"Claim", "Tx", "Key", "Lease", "Retry", "Delay", "Dedup", "Input", "Content", "Kind", "Options", "Unique", "Report", "Barrier", "Work"},
			})
		})
	}
}

func queueInstance(t testing.TB, p *program, order penstock.QueueOrder) queuetest.Instance {
	g := goalOn(t, p, postgrestest.Holding(t, "queue "+string(order), postgres.Options{}, func(ctx context.Context, s *postgres.Store) error {
		return s.CreateQueue(ctx, queuetest.Queue, order)
	}))
	others := 0
	return queuetest.Instance{
		Store: g.store,
		Begin: func(ctx context.Context) (queuetest.Tx, error) { return g.store.c.begin(ctx) },
		Another: func(t testing.TB) driver.QueueStore { // Go and the language in turn, so they meet
			if others++; others%2 == 0 {
				return openStore(t, g.url)
			}
			return &remoteStore{Store: openStore(t, g.url), c: p.open(t, g.url)}
		},
		Backdate: func(testing.TB, string, string, time.Duration) {},
		Work: func(ctx context.Context, q driver.Queue, h work.Handler, o work.Options) error {
			if q, ok := q.(remoteQueue); ok {
				return q.work(ctx, func(ctx context.Context, _ string, j penstock.Job) error { return h(ctx, j) }, o, nil)
			}
			return work.Run(ctx, q, h, o)
		},
	}
}

// The parts of the outboxes' suite that are about producing.
func TestOutboxes(t *testing.T) {
	t.Parallel()
	for _, l := range tested() {
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			p := l.shared(t)
			open := func(t testing.TB) storetest.Instance {
				l.count(t)
				g := goalOn(t, p, postgrestest.Holding(t, "outbox", postgres.Options{}, func(ctx context.Context, s *postgres.Store) error {
					return s.CreateOutbox(ctx, storetest.Outbox)
				}))
				execute(t, g.url, "create table counter (name text primary key, n bigint not null)")
				return storetest.Instance{
					Store:   g.store,
					Begin:   func(ctx context.Context) (storetest.Tx, error) { return g.store.c.begin(ctx) },
					Another: func(t testing.TB) driver.Store { return openStore(t, g.url) },
				}
			}
			storetest.Run(t, storetest.Harness{
				Open:        open,
				OpenCreated: open,
				Features:    storetest.Features{ConcurrentWriters: true},
				Only:        storetest.ByAClient,
				Groups:      []string{"Visibility", "Content", "Input"},
			})
		})
	}
}
