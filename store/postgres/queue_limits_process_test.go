package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/work"
)

// workerEnv makes a process of this test binary a worker of the queue "q", of all groups: its value is the name, the lease and the URL.
const workerEnv = "PENSTOCK_TEST_WORKER_OF_GROUPS"

const workerSlots = 8

// A handler passes the gate, which the test closes with an exclusive lock.
const gate = 1702060386

// runWorker is main of such a process. It ends with its standard input, so it outlives no test.
func runWorker(as string) error {
	name, rest, _ := strings.Cut(as, " ")
	lease, url, _ := strings.Cut(rest, " ")
	of, err := time.ParseDuration(lease)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	config.MaxConns = workerSlots + 8
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	handle := func(ctx context.Context, job penstock.Job) error {
		_, err := pool.Exec(ctx, "select pg_advisory_xact_lock_shared($1)", gate)
		if err == nil && job.ID%7 == 0 && job.Attempt == 1 {
			err = penstock.RetryAfter(errors.New("each seventh job fails once"), 0)
		}
		return err
	}
	return work.Run(ctx, postgres.New(pool, postgres.Options{}).DriverQueue("q"), handle, work.Options{Worker: name, Concurrency: workerSlots, AllGroups: true, Lease: of})
}

// workers are processes that work for a test.
type workers struct {
	testing.TB
	url   string
	lease time.Duration
	all   []*osexec.Cmd
	begun int
}

func (w *workers) start() {
	w.Helper()
	self, err := os.Executable()
	if err != nil {
		w.Fatal(err)
	}
	w.begun++
	cmd := osexec.Command(self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=w%d %s %s", workerEnv, w.begun, w.lease, w.url))
	if _, err := cmd.StdinPipe(); err != nil {
		w.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	w.all = append(w.all, cmd)
}

// kill ends one without notice.
func (w *workers) kill(i int) {
	w.Helper()
	if err := w.all[i].Process.Kill(); err != nil {
		w.Fatal(err)
	}
	_ = w.all[i].Wait()
	w.all = slices.Delete(w.all, i, i+1)
}

func (w *workers) signal(i int, s syscall.Signal) {
	w.Helper()
	if err := w.all[i].Process.Signal(s); err != nil {
		w.Fatal(err)
	}
}

// Weights are shares of each thousand jobs that start, with three processes of which one is killed. A group with one job among deep ones has its turn
// within a round and the 16 groups of a search. Until then a process comes twice at most to any other group.
func TestSharesOfProcesses(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	fill := func(group string, weight, jobs int) {
		f.Exec("select penstock.set_group('q', $1, weight => $2), penstock.enqueue_many('q', array_fill('x'::text, array[$3::int]), group_keys => array_fill($1, array[$3::int]))", group, weight, jobs)
	}
	thousands, deep := 3, 100
	if testseed.Long() {
		thousands, deep = 20, 1000
	}
	for i, group := range []string{"a", "b", "c"} {
		fill(group, 1<<i, 200*thousands<<i)
	}
	f.Exec("create table claims (n bigserial, group_key text)")
	f.Exec("create function note_claim() returns trigger language plpgsql security definer as $$ begin insert into public.claims (group_key) values (new.group_key); return null; end $$")
	f.Exec("create trigger note after insert on penstock._lease for each row when (new.queue > 0) execute function note_claim()")
	claims := func(group string) int64 {
		return f.Number("select count(*) from claims where group_key like $1", group)
	}
	processes := &workers{TB: t, url: f.URL, lease: time.Minute}
	for range 3 {
		processes.start()
	}
	f.Eventually("a third has started", func() bool { return claims("%") >= int64(thousands*1000/3) })
	processes.kill(1)
	f.Eventually("most jobs have started", func() bool { return claims("%") >= int64(thousands*1000) })
	rows, err := f.Conn.Query(f.Ctx, `select s.begin, count(*) filter (where group_key = 'a'), count(*) filter (where group_key = 'b'), count(*) filter (where group_key = 'c')
		from generate_series(0, ($1 - 1) * 1000, 100) s(begin), (select *, row_number() over (order by n) as i from claims) c where i > s.begin and i <= s.begin + 1000 group by 1 order by 1`, thousands)
	f.Must(err)
	var from int64
	var got [3]float64
	_, err = pgx.ForEachRow(rows, []any{&from, &got[0], &got[1], &got[2]}, func() error {
		for i, n := range got {
			if want := 1000 * float64(int(1)<<i) / 7; n < 0.95*want || n > 1.05*want {
				t.Errorf("of the thousand from %d on, group %d has %.0f, want %.0f", from, i+1, n, want)
			}
		}
		return nil
	})
	f.Must(err)

	f.Exec("select penstock.set_group('q', g, weight => 1) from unnest('{a,b,c}'::text[]) g, penstock.set_group('q', '*', weight => 2)")
	f.Exec("select penstock.enqueue_many('q', array_fill('x'::text, array[40 * $1::int]), group_keys => array(select 'deep ' || i % $1::int from generate_series(1, 40 * $1::int) i))", deep)
	f.Eventually("a round has begun", func() bool { return claims("deep %") > 10 })
	f.Exec("select penstock.enqueue('q', 'x', group_key => 'deep 2 alone')")
	before := f.Number("select max(n) from claims")
	f.Eventually("it has started", func() bool { return claims("deep 2 alone") > 0 }) // a seventh of the jobs start again
	jobs := f.Number(`select max(c) from (select count(*) as c from claims where group_key like 'deep %' and n > $1 and n < (select min(n) from claims where group_key = 'deep 2 alone') group by group_key) c`, before)
	if turns := 2 * len(processes.all); jobs > int64(2*turns) {
		t.Errorf("a group with one job had its turn after another had %d jobs, want %d turns of two at most", jobs, turns)
	}
}
