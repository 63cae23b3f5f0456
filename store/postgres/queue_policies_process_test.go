package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// policy is that of a group: running jobs, starts in each 100 ms, and how many of these at once. A rate of 0 is none.
type policy struct{ limit, rate, burst, weight int }

const ratePer = 100 * time.Millisecond

func drawPolicy(random *rand.Rand) policy {
	return policy{1 + random.IntN(5), random.IntN(6), 1 + random.IntN(4), 1 + random.IntN(4)}
}

// span is some of the starts of a group, in their order. All of them began under one policy, and no clock was set meanwhile.
type span struct {
	group     string
	policy    policy
	from, end int64 // those after from, up to end
}

// watched is what a test allows: of each group as many leases as its limit, or as it had when that was lowered, and starts by its rate.
type watched struct {
	*fixture
	conn    *pgx.Conn
	mu      sync.Mutex
	policy  map[string]policy // of each group with a limit
	allowed map[string]int
	looks   int
	open    map[string]span // of groups with a rate
	spans   []span
}

// watch notes starts, each before the claim notes it: so it is later than what lets it start, and earlier than what it is counted by.
func watch(f *fixture) *watched {
	f.Exec("create table starts (lease bigint primary key, n bigserial, group_key text, at timestamptz default clock_timestamp())")
	f.Exec(`create function note_start() returns trigger language plpgsql security definer as $$ begin
		insert into public.starts (lease, group_key) values (new.lease, new.group_key) on conflict do nothing;
		return new;
	end $$`)
	f.Exec("create trigger note before insert on penstock._lease for each row when (new.queue > 0) execute function note_start()")
	return &watched{fixture: f, conn: f.Connect(), policy: map[string]policy{}, allowed: map[string]int{}, open: map[string]span{}}
}

// look compares the leases of all groups with what is allowed. They are read in one statement.
func (w *watched) look() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	running, err := w.running()
	if err != nil {
		return err
	}
	w.looks++
	for group, most := range w.allowed {
		n := running[group]
		if n > most {
			return fmt.Errorf("%d jobs of the group %q have leases, %d may", n, group, most)
		}
		w.allowed[group] = max(w.policy[group].limit, min(most, n))
	}
	return nil
}

func (w *watched) running() (map[string]int, error) {
	rows, err := w.conn.Query(w.Ctx, "select group_key, sum(coalesce(256 - bit_count(done), 1))::int from penstock._lease where queue > 0 group by 1")
	if err != nil {
		return nil, err
	}
	running := map[string]int{}
	var group string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&group, &n}, func() error { running[group] = n; return nil })
	return running, err
}

// started is the place of the last start so far, committed or not.
func (w *watched) started() int64 { return w.Number("select last_value from starts_n_seq") }

// change makes a change that claims go by. Those that had begun before may not, so it waits for them. What starts meanwhile is in no span of the groups.
func (w *watched) change(groups []string, change func()) {
	w.Helper()
	for _, group := range groups {
		if s, is := w.open[group]; is {
			s.end = w.Number("select coalesce(max(n), 0) from starts")
			w.spans = append(w.spans, s)
			delete(w.open, group)
		}
	}
	change()
	claims := w.text("select coalesce(string_agg(virtualtransaction, ','), '') from pg_locks where locktype = 'virtualxid' and pid <> pg_backend_pid()")
	w.Eventually("the claims that had begun have ended", func() bool {
		return w.Number("select count(*) from pg_locks where locktype = 'virtualxid' and virtualtransaction = any (string_to_array($1, ','))", claims) == 0
	})
	for _, group := range groups {
		if p := w.policy[group]; p.rate > 0 {
			w.open[group] = span{group: group, policy: p, from: w.started()}
		}
	}
}

// set changes the policy of a group. It also waits until what earlier claims took is listed, which the maintenance does once a second.
func (w *watched) set(group string, p policy) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	before, was := w.allowed[group]
	delete(w.allowed, group)
	w.policy[group] = p
	w.change([]string{group}, func() {
		w.Exec(`select penstock.set_group('q', $1, max_running => nullif($2, 0), rate => nullif($3, 0), per => case when $3 > 0 then $4::interval end,
			burst => case when $3 > 0 then $5::int end, weight => $6)`, group, p.limit, p.rate, ratePer, p.burst, p.weight)
	})
	if p.limit == 0 {
		delete(w.policy, group)
		return
	}
	w.Eventually("all leases are listed", func() bool {
		return w.Number("select count(*) from penstock._lease where queue > 0 and group_key = $1 and listed is not true", group) == 0
	})
	running, err := w.running()
	w.Must(err)
	w.allowed[group] = max(p.limit, running[group])
	if was {
		w.allowed[group] = max(p.limit, min(before, w.allowed[group]))
	}
}

// setClock sets the server's clock. By the new one a rate counts anew.
func (w *watched) setClock(server *testserver.Postgres, offset time.Duration) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var rated []string
	for group := range w.open {
		rated = append(rated, group)
	}
	w.change(rated, func() { w.Must(server.SetClock(offset)) })
}

// checkRates compares all starts with the rates: in no time are there more than a burst, and what the rate adds.
func (w *watched) checkRates() {
	w.Helper()
	starts := 0
	for _, s := range w.spans {
		rows, err := w.Conn.Query(w.Ctx, "select (extract(epoch from at) * 1000000)::bigint from starts where group_key = $1 and n > $2 and n <= $3 order by n",
			s.group, s.from, s.end)
		w.Must(err)
		at, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		w.Must(err)
		starts += len(at)
		each := ratePer.Microseconds()/int64(s.policy.rate) - 1 // to the microsecond
		for i, first := 0, 0; i < len(at); i++ {
			if at[i]-int64(i)*each > at[first]-int64(first)*each {
				first = i
			}
			if n, took := i-first+1, at[i]-at[first]; int64(n-s.policy.burst)*each > took {
				w.Errorf("%d jobs of the group %q started within %d µs, at %d per %s with a burst of %d", n, s.group, took, s.policy.rate, ratePer, s.policy.burst)
				break
			}
		}
	}
	w.Logf("%d starts in %d spans with rates", starts, len(w.spans))
}

// Random limits, rates and weights, and workers that are killed, or stopped until their leases have ended, while the clock is set on and back. No group has
// more leases than its limit, looked at all the time, and no more starts than its rate. With all handlers held up, each group fills its limit, or no
// worker has a free slot, also with a clock that was set back by an hour. No group starves. Without limits the groups then share the starts by their weights.
// In the end all is done.
func TestLimitsOfProcesses(t *testing.T) {
	t.Parallel()
	env := suite.NewEnv(t)
	random := env.Random(0)
	server := testserver.StartPostgresWithClock(t)
	f := fixtureOn(t, testserver.Database(t, server.URL), postgres.Options{Segments: 4, SegmentBytes: 65536})
	f.Exec("select penstock.create_queue('q'), penstock.set_queue('q', max_attempts => 1000000)")
	w := watch(f)
	groups := []string{"", "a", "b", "c", "by default", "also by default"}
	enqueue := func(jobs int) {
		f.Exec("select penstock.enqueue_many('q', array_fill('x'::text, array[$1::int]), group_keys => array(select ($2::text[])[1 + i % cardinality($2)] from generate_series(1, $1::int) i))", jobs, groups)
	}
	f.Exec("select penstock.set_group('q', '*', max_running => 2)")
	for _, group := range groups {
		w.policy[group], w.allowed[group] = policy{limit: 2}, 2
		if !strings.Contains(group, "default") {
			w.set(group, drawPolicy(random))
		}
	}
	enqueue(600)
	processes := &workers{TB: t, url: f.URL, lease: time.Second}
	for range 3 {
		processes.start()
	}
	watching, stopped := context.WithCancel(t.Context())
	seen := make(chan error, 1)
	go func() {
		var err error
		for moment := time.NewTicker(time.Millisecond); err == nil && watching.Err() == nil; <-moment.C {
			err = w.look()
		}
		seen <- err
	}()
	shut := f.Connect()
	full := func() {
		t.Helper()
		enqueue(10 * len(groups))
		_, err := shut.Exec(f.Ctx, "select pg_advisory_lock($1)", gate)
		f.Must(err)
		filled := map[string]bool{} // at some moment: on a busy machine leases end meanwhile, and their jobs start again
		f.Eventually("each group fills its limit", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			running, err := w.running()
			f.Must(err)
			all, room := 0, false
			for group, p := range w.policy {
				all += running[group]
				filled[group] = filled[group] || running[group] >= p.limit
				room = room || !filled[group]
			}
			return !room || all >= len(processes.all)*workerSlots || len(seen) > 0
		})
		_, err = shut.Exec(f.Ctx, "select pg_advisory_unlock($1)", gate)
		f.Must(err)
	}
	disturb := func() {
		t.Helper()
		i := random.IntN(len(processes.all))
		if random.IntN(2) == 0 {
			processes.kill(i)
			processes.start()
			return
		}
		name := processes.all[i].Env[len(processes.all[i].Env)-1] // its jobs are taken by others, and it believes that it has them
		name, _, _ = strings.Cut(strings.TrimPrefix(name, workerEnv+"="), " ")
		processes.signal(i, syscall.SIGSTOP)
		f.Eventually("its leases end", func() bool {
			return f.Number("select count(*) from penstock._lease where queue > 0 and worker = $1", name) == 0
		})
		processes.signal(i, syscall.SIGCONT)
	}
	full()
	for step := range testseed.Steps(40) {
		switch what := random.IntN(6); what {
		case 0, 1:
			disturb()
		case 2:
			w.setClock(server, time.Duration(random.Int64N(int64(4*time.Second)))-2*time.Second)
		case 3:
			full()
		default:
			w.set(groups[random.IntN(4)], drawPolicy(random))
		}
		before := w.started()
		enqueue(10*len(groups) + random.IntN(100))
		f.Eventually("jobs of each group start", func() bool {
			served := f.Number("select count(*) from (select from starts where n > $1 group by group_key having count(*) > 4) g", before)
			return len(seen) > 0 || served == int64(len(groups))
		})
		if len(seen) > 0 {
			t.Logf("in step %d", step)
			break
		}
	}
	w.setClock(server, -time.Hour)
	full()
	w.setClock(server, 0)
	w.checkShares(processes, random.Perm(4), groups[:4], disturb)
	f.Eventually("all jobs have ended", func() bool {
		return len(seen) > 0 || f.Number("select (select count(*) from penstock.q) + (select count(*) from penstock._scheduled) + (select count(*) from penstock._lease where queue > 0)") == 0
	})
	stopped()
	if err := <-seen; err != nil {
		t.Error(err)
	}
	if n := f.Number("select count(*) from penstock._dead_job"); n > 0 {
		t.Errorf("%d jobs are dead", n)
	}
	w.checkRates()
	t.Logf("looked %d times", w.looks)
}

// checkShares gives the groups weights, no limits, and enough jobs. A process may be in the middle of a round when the count begins and when it ends.
func (w *watched) checkShares(processes *workers, weights []int, groups []string, disturb func()) {
	w.Helper()
	const all = 1000
	sum := 0
	for i := range weights {
		weights[i]++
		sum += weights[i]
	}
	for i, group := range groups {
		w.Exec("select penstock.enqueue_many('q', array_fill('x'::text, array[$2::int]), group_keys => array_fill($1::text, array[$2::int]))",
			group, all*weights[i]/sum+300)
	}
	for i, group := range groups {
		w.set(group, policy{weight: weights[i]})
	}
	from, begun := w.started(), processes.begun
	count := func() []int {
		rows, err := w.Conn.Query(w.Ctx, `select count(s.n)::int from unnest($1::text[]) with ordinality g(group_key, i)
			left join (select * from starts where n > $2 and group_key = any ($1) order by n limit $3) s using (group_key) group by g.i order by g.i`, groups, from, all)
		w.Must(err)
		n, err := pgx.CollectRows(rows, pgx.RowTo[int])
		w.Must(err)
		return n
	}
	total := func(n []int) (sum int) {
		for _, n := range n {
			sum += n
		}
		return sum
	}
	w.Eventually("a third has started", func() bool { return total(count()) >= all/3 })
	disturb()
	w.Eventually("most have started", func() bool { return total(count()) >= all })
	rounds := 2 * (len(processes.all) + processes.begun - begun)
	got := count()
	w.Logf("weights %v: %v", weights, got)
	for i, n := range got {
		if want := all * weights[i] / sum; n < want-want/20-rounds*weights[i] || n > want+want/20+rounds*weights[i] {
			w.Errorf("of %d starts of groups with the weights %v these are of each: %v", all, weights, got)
		}
	}
}
