package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/store/postgres"
)

// A few jobs stay in a segment among many that were taken, and a snapshot keeps all their dead rows. The search for a job
// there, in a worker's commit, steps over them. It does so now and then, not with each maintenance. While the job that it
// has found is there it looks at that, and otherwise it waits for as long as the search was expensive. When the jobs are
// gone, so is the segment.
func TestStragglersAmongDeadRows(t *testing.T) {
	t.Parallel()
	const dead, rounds = 20_000, 20
	for _, where := range []string{"written to", "left behind"} {
		for _, meanwhile := range []string{"time passes", "they go one by one"} {
			t.Run(fmt.Sprintf("%s/%s", where, meanwhile), func(t *testing.T) {
				f := newFixture(t, postgres.Options{})
				f.Exec("select penstock.create_queue('q', 'fifo', 4, $1), penstock.keep_samples('0')", 1<<30) // a sample searches, less and less often
				f.Exec("insert into penstock.q (group_key, payload) select 'g', '' from generate_series(1, 100)")
				f.Exec("insert into penstock.q (payload) select '' from generate_series(1, $1::int)", dead)
				f.pin()
				f.Exec(`delete from penstock."_q.0" where group_key = ''`)
				if where == "left behind" {
					f.Exec("update penstock._queue set segment_bytes = 65536")
				}
				// Each search is expensive, as one of over 10 ms is, and is remembered for a minute.
				f.Exec(`create or replace function penstock._look_again(began timestamptz) returns timestamptz language sql volatile return clock_timestamp() + interval '1 min';
					do $$ declare body text; begin
						for body in select replace(pg_get_functiondef(oid), '- began > interval ''10 ms''', '- began > interval ''-1 s''') from pg_proc
						             where pronamespace = 'penstock'::regnamespace and prosrc like '%- began > interval%' loop
							execute body;
						end loop;
					end $$`, pgx.QueryExecModeSimpleProtocol)
				maintain := func() int {
					return f.pagesOn(f.Conn, `select setval('penstock."_q.maintained"', 0), setval('penstock."_q.seen"', pg_sequence_last_value('penstock."_q.seen"') & 268435455)`, `select penstock.maintain_queue('q')`)
				}
				search := f.pagesOn(f.Conn, `set enable_seqscan = off; set enable_sort = off; set jit = off`, `select from penstock."_q.0" order by xid desc limit 1`)
				expensive, pages := 0, 0
				for range rounds {
					n := maintain()
					pages += n
					if n > search/2 {
						expensive++
					}
					if meanwhile == "time passes" {
						f.Exec("update penstock._segment set again = null")
					} else {
						f.Exec(`delete from penstock."_q.0" t where t.ctid in (select s.job from penstock._segment s where s.slot = 0)`)
					}
				}
				t.Logf("%d rounds read %d pages, %d of them more than half of the %d of a search", rounds, pages, expensive, search)
				if expensive > 1 { // the first one, which is remembered
					t.Errorf("%d of %d rounds stepped over the dead rows", expensive, rounds)
				}
				f.wantText("0", "select count(trouble)::text from penstock._segment")
				if where == "written to" {
					f.wantText("0", `select (pg_sequence_last_value('penstock."_q.ring"') % 1024)::text`)
				}
				f.Exec(`delete from penstock."_q.0"`)
				f.Eventually("its space is given back", func() bool {
					f.Exec("update penstock._segment set again = null")
					maintain()
					return f.Number(`select pg_relation_size('penstock."_q.0"')`) == 0
				})
			})
		}
	}
}
