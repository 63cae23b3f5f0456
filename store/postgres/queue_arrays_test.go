package postgres_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ranPlan is a plan of a statement that was run, as auto_explain tells it.
type ranPlan struct {
	Rows    float64   `json:"Actual Rows"`
	Loops   float64   `json:"Actual Loops"`
	Removed float64   `json:"Rows Removed by Filter"`
	Joined  float64   `json:"Rows Removed by Join Filter"`
	Inner   []ranPlan `json:"Plans"`
}

func (p ranPlan) steps() float64 {
	n := (p.Rows + p.Removed + p.Joined) * p.Loops
	for _, inner := range p.Inner {
		n += inner.steps()
	}
	return n
}

// stepsOn opens a session that shows how many rows each node of the plans of a statement has gone over, with those of the functions that it calls.
func stepsOn(f *fixture) func(sql string, args ...any) float64 {
	f.Helper()
	cfg, err := pgx.ParseConfig(f.URL)
	f.Must(err)
	var steps float64
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if _, text, found := strings.Cut(n.Message, "plan:\n"); found {
			var told struct{ Plan ranPlan }
			if err := json.Unmarshal([]byte(text), &told); err != nil {
				f.Errorf("%v: %s", err, text)
			}
			steps += told.Plan.steps()
		}
	}
	conn, err := pgx.ConnectConfig(f.Ctx, cfg)
	f.Must(err)
	f.Cleanup(func() { _ = conn.Close(f.Ctx) })
	if _, err := conn.Exec(f.Ctx, "load 'auto_explain'"); err != nil {
		f.Skipf("auto_explain is not there: %v", err)
	}
	return func(sql string, args ...any) float64 {
		f.Helper()
		on := `set auto_explain.log_min_duration = 0; set auto_explain.log_level = notice; set auto_explain.log_format = json; set auto_explain.log_analyze = on;
			set auto_explain.log_timing = off; set auto_explain.log_nested_statements = on`
		_, err := conn.Exec(f.Ctx, on)
		f.Must(err)
		steps = 0
		_, err = conn.Exec(f.Ctx, sql, args...)
		f.Must(err)
		all := steps
		_, err = conn.Exec(f.Ctx, "set auto_explain.log_min_duration = -1")
		f.Must(err)
		return all
	}
}

// Ten times as many elements of an array are ten times the work, whatever takes them. A plan does not show this: to find an element of an array
// of texts by its subscript, PostgreSQL goes over all before it.
func TestArraysAreGoneOverOnce(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	const (
		texts   = "array(select 'x'::text from generate_series(1, $2::int))"
		several = `with recursive c(i, lease) as (select 0, null::bigint union all
			select i + 1, (select lease from penstock.ack_claim($1, '{}', 8 + 0 * i) limit 1) from c where i < $2::int) select array_agg(lease) filter (where i > 0) from c`
		claim = "select array_agg(lease) from penstock.claim($1, $2::int)"
		whole = "select array_agg(lease) from generate_series(1, $2::int, 200) g, penstock.ack_claim($1, '{}', 200 + 0 * g)"
		jobs  = "select count(*) from penstock.enqueue_many($1, array(select 'x'::text from generate_series(1, 10 * $2::int)))"
		keyed = "select count(*) from penstock.enqueue_many($1, " + texts + ", keys => array(select 'k' || i from generate_series(1, $2::int) i))"
		dead  = `with d as (insert into penstock._dead_job (queue, id, attempt, created_at, priority, group_key, payload, failures)
			select q.id, i, 1, now(), 0, '', 'x', '[]' from penstock._queue q, generate_series(1, $2::int) i where q.name = $1 returning id) select array_agg(id) from d`
		none = "select '{}'::bigint[] where $1 <> '' and $2::int > 0"
		many = "array(select 1 from generate_series(1, $2::int))"
	)
	for _, c := range []struct{ name, fill, prepare, call string }{
		{"enqueue", none, none, "select count(*) from penstock.enqueue_many($1, " + texts + ")"},
		{"enqueue, everything", none, none, "select count(*) from penstock.enqueue_many($1, " + texts + ", keys => array(select 'k' || i from generate_series(1, $2::int) i), group_keys => " + texts +
			", priorities => " + many + ", not_befores => array(select now() + interval '1 h' from generate_series(1, $2::int)), dedup_keys => array(select 'd' || i from generate_series(1, $2::int) i), headers => array(select jsonb '{}' from generate_series(1, $2::int)))"},
		{"claim of keys", keyed, none, "select count(*) from penstock.claim($1, $2::int)"},
		{"ack", jobs, claim, "select count(*) from penstock.ack_many($1, $3) where $2::int > 0"},
		{"ack of keys", keyed, claim, "select count(*) from penstock.ack_many($1, $3) where $2::int > 0"},
		{"ack of whole claims", jobs, whole, "select count(*) from penstock.ack_many($1, $3) where $2::int > 0"},
		{"ack of one of each claim", jobs, several, "select count(*) from penstock.ack_many($1, $3) where $2::int > 0"},
		{"ack and claim", jobs, several, "select count(*) from penstock.ack_claim($1, $3, 8) where $2::int > 0"},
		{"extend", jobs, claim, "select count(*) from penstock.extend_many($1, $3, '1 h') where $2::int > 0"},
		{"extend one of each claim", jobs, several, "select count(*) from penstock.extend_many($1, $3, '1 h') where $2::int > 0"},
		{"extend whole claims", jobs, whole, "select count(*) from penstock.extend_many($1, $3, '1 h') where $2::int > 0"},
		{"release", jobs, claim, "select count(*) from penstock.release_many($1, $3) where $2::int > 0"},
		{"release one of each claim", jobs, several, "select count(*) from penstock.release_many($1, $3) where $2::int > 0"},
		{"cancel", none, "select array_agg(id) from penstock.enqueue_many($1, " + texts + ") id", "select penstock.cancel($1, $3) where $2::int > 0"},
		{"cancel what is delayed", none, "select array_agg(id) from penstock.enqueue_many($1, " + texts + ", not_befores => array(select now() + interval '1 h' from generate_series(1, $2::int))) id", "select penstock.cancel($1, $3) where $2::int > 0"},
		{"retry what is dead", none, dead, "select penstock.retry_dead_jobs($1, $3) where $2::int > 0"},
		{"discard what is dead", none, dead, "select penstock.discard_dead_jobs($1, $3) where $2::int > 0"},
		{"inbox", "select penstock.create_inbox($1) where $2::int > 0", none, "select count(*) from penstock.inbox_many($1, array(select 'm' || i from generate_series(1, $2::int) i))"},
		{"ready groups", none, none, "select count(*) from penstock.ready_groups($1, array(select 'g' || i from generate_series(1, $2::int) i))"},
	} {
		t.Run(c.name, func(t *testing.T) {
			steps := stepsOn(f)
			var took [2]float64
			for i, n := range []int{100, 1000} {
				queue := c.name + string(rune('0'+i))
				f.Exec("select penstock.create_queue($1)", queue)
				f.Exec(c.fill, queue, n)
				var leases []int64
				f.Must(f.Conn.QueryRow(f.Ctx, c.prepare, queue, n).Scan(&leases))
				args := []any{queue, n}
				if strings.Contains(c.call, "$3") {
					args = append(args, leases)
				}
				took[i] = steps(c.call, args...)
			}
			t.Logf("%.0f steps for 100, %.0f for 1000", took[0], took[1])
			if took[0] == 0 || took[1] > 15*took[0]+1000 {
				t.Errorf("100 elements take %.0f steps, 1000 take %.0f", took[0], took[1])
			}
		})
	}
	f.wantText("", `select coalesce(string_agg(p.oid::regprocedure || ' ' || a.name, ', '), '') from pg_proc p, unnest(p.proargnames) a(name)
		where p.pronamespace = 'penstock'::regnamespace and p.prosrc ~ ('\m' || a.name || '\[[a-z]') and p.proallargtypes is null
		and p.proargtypes[array_position(p.proargnames, a.name) - 1] = any ('{text[],bytea[],jsonb[]}'::regtype[]) and p.prorettype <> 'text'::regtype`)
}
