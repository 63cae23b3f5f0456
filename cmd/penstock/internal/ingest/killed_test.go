package ingest_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/ingest"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testseed"
)

// childEnv makes the test binary serve: it is the database.
const childEnv = "PENSTOCK_INGEST_TEST_CHILD"

func TestMain(m *testing.M) {
	if at := os.Getenv(childEnv); at != "" {
		child(at)
	}
	os.Exit(postgrestest.Run(m))
}

// child serves until it is killed.
func child(at string) {
	store, err := open(context.Background(), at)
	if err == nil {
		var s *ingest.Server
		if s, err = ingest.New(store, ingest.Options{Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}); err == nil {
			fmt.Println(s.Addr())
			err = s.Run(context.Background())
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// Messages answered with 200 before kill -9 are delivered.
func TestKeepsWhatItAcknowledged(t *testing.T) {
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	stores(t, func(t *testing.T, at string, store database) {
		random := testseed.New(t.Name(), 0)
		acknowledged := map[string]bool{}
		for round := range testseed.Steps(4) {
			maps.Copy(acknowledged, killed(t, at, round, 1+random.IntN(300)))
		}
		got := map[string]int{}
		for _, m := range published(t, store, "orders") {
			got[m.ID]++
		}
		for id := range acknowledged {
			if got[id] != 1 {
				t.Errorf("message %s was acknowledged, and delivered %d times", id, got[id])
			}
		}
		t.Logf("%d acknowledged, %d delivered", len(acknowledged), len(got))
	})
}

// process serves a database until it is killed.
func process(t *testing.T, at string) (addr string, server *exec.Cmd) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr = append(os.Environ(), childEnv+"="+at), t.Output()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), cmd
}

// killed is the output of clients whose server was killed after a number of answers.
func killed(t *testing.T, at string, round, answers int) map[string]bool {
	t.Helper()
	addr, server := process(t, at)
	var (
		mu  sync.Mutex
		all sync.WaitGroup
		got = map[string]bool{}
	)
	for client := range 8 {
		all.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d-%d", round, client, i)
				code, text, _, err := post(t.Context(), addr, "orders", `{"id":"`+id+`"}`, asJSON)
				if err != nil {
					return // it is dead
				}
				if code != 200 {
					t.Errorf("%d %s", code, text)
					return
				}
				mu.Lock()
				if got[id] = true; len(got) == answers {
					_ = server.Process.Kill()
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return got
}
