package postgres_test

import "testing"

// What a queue costs must not depend on how many there are: creating or dropping one rewrites no
// function that is not its own.
func TestCreatingAQueueRewritesNothing(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	const others = `select md5(string_agg(p.oid || ' ' || p.xmin, ',' order by p.oid)) from pg_proc p
		where p.pronamespace = 'penstock'::regnamespace and not starts_with(p.proname, '_more.') and p.proname <> 'dequeue_more'`
	before := f.text(others)
	f.Exec("select penstock.create_queue('more')")
	f.Exec("select penstock.enqueue('more', 'x')")
	f.wantText("x", "select convert_from(payload, 'UTF8') from penstock.dequeue('more')")
	f.wantText(before, others)
	f.Exec("select penstock.drop_queue('more')")
	f.wantText(before, others)
	f.wantText("0", "select count(*)::text from pg_proc where proname = 'dequeue_more' or starts_with(proname, '_more.')")
	f.wantText("0", "select count(*)::text from pg_class where relname = 'more' or starts_with(relname, '_more.')")
}
