package postgres_test

import "testing"

// What became of many jobs stands in settings of a thousand letters each: deduplicated, called for each of the jobs, goes over one of them and not over all.
func TestDeduplicatedOfManyJobs(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	many := func(jobs string) string { // each key twice, one job after the other
		return "select coalesce(penstock.deduplicated(e.n), true) <> (e.n % 2 = 0) as wrong from penstock.enqueue_many('q', array(select 'x'::text from generate_series(1, " + jobs + ")), " +
			"dedup_keys => array(select 'd' || i / 2 from generate_series(2, " + jobs + " + 1) i)) with ordinality e(id, n)"
	}
	f.Exec("begin")
	f.wantText("2500 0", "select count(*) || ' ' || count(*) filter (where wrong) from ("+many("2500")+") e")
	f.wantText("1000", "select max(length(current_setting('penstock.deduplicated' || i, true)))::text from unnest(array['', '_0', '_1', '_2']) i")
	f.wantText("null null null", "select string_agg(coalesce(penstock.deduplicated(n)::text, 'null'), ' ') from unnest(array[-1500, 0, 2501]) n")
	f.Exec("savepoint s")
	f.Exec("select penstock.enqueue_many('q', array['a', 'b'], dedup_keys => array['d1', 'new'])")
	const some = "select string_agg(coalesce(penstock.deduplicated(n)::text, 'null'), ' ') from unnest(array[1, 2, 3, 1001, 2002]) n"
	f.wantText("true false null null null", some)
	f.Exec("rollback to s")
	f.wantText("false true false false true", some)
	f.Exec("select penstock.enqueue('q', 'x')")
	f.wantText("null null null null null", some)
	f.Exec("commit")
}
