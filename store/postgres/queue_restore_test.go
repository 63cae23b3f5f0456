package postgres_test

import "testing"

// A dump is restored into a cluster whose xids are lower. A skip map in it waits for a transaction that had not ended
// when it was made, and had when the dump was taken. The job is found, though the xid is one of the future here.
func TestSkipMapThatWaitsForAnXidOfAnotherCluster(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]string{
		"batch": "select from penstock.dequeue('q', 100)",
		"one":   "select from penstock.dequeue('q')",
		"claim": "select from penstock.claim('q', 100)",
		"keyed": "select from penstock.claim('q', 100)",
	} {
		for _, ordering := range []string{"fifo", "lifo"} {
			t.Run(ordering+"/"+name, func(t *testing.T) {
				t.Parallel()
				f := newJobs(t, ordering)
				late := f.begin(f.Connect())
				f.exec(late.Conn(), "insert into penstock.q (payload) values ('late')")
				for i := range 4 {
					f.enqueue(f.Conn, "q", 100*i+1, 100*i+100)
					if got := f.take(f.Conn, "q", 1000); len(got) != 100 {
						t.Fatalf("took %d jobs", len(got))
					}
					f.Exec(`select penstock."_q.skip_map"('', 0::smallint)`)
				}
				f.Must(late.Commit(f.Ctx))
				f.wantText("true", "select (pending <> '{}')::text from penstock._skip_map order by n desc limit 1")
				f.Exec(`update penstock._skip_map set xid = (10000000000 + xid::text::bigint)::text::xid8,
					pending = array(select (10000000000 + x::text::bigint)::text::xid8 from unnest(pending) x)`)
				f.Exec("update penstock.q set xid = (10000000000 + xid::text::bigint)::text::xid8")
				if name == "keyed" {
					f.Exec("select penstock.enqueue('q', 'keyed', key => 'k')")
				}
				f.later("q")
				f.Eventually("the job of the late transaction comes", func() bool {
					f.Exec(take)
					return f.Number("select count(*) from penstock.q where payload = 'late'") == 0
				})
			})
		}
	}
}
