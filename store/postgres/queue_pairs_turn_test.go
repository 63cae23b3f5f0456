package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/pgerror"
)

// The calls that a worker may make with a lease, each with the number of leases it has found.
var endings = map[string]string{
	"ack":          "select 1 from penstock.ack('q', $1)",
	"ack_many":     "select count(*) from penstock.ack_many('q', array[$1::bigint])",
	"claim":        `select count(*) from penstock."_q.claim"(1, '1 h', 'none', '', array[$1::bigint])`,
	"extend":       "select 1 from penstock.extend('q', $1, '1 h')",
	"extend_many":  "select count(*) from penstock.extend_many('q', array[$1::bigint], '1 h')",
	"release":      "select 1 from penstock.release('q', $1)",
	"release_many": "select count(*) from penstock.release_many('q', array[$1::bigint])",
	"retry":        "select 1 from penstock.retry('q', $1)",
	"dead_letter":  "select 1 from penstock.dead_letter('q', $1)",
}

func (f *fixture) turnLeases() {
	f.Helper()
	f.Exec("select penstock._reclaim_pair('_lease', 1, 'true')")
}

// leaseOne has a job of a key or of none leased.
func (f *fixture) leaseOne(key string) int64 {
	f.Helper()
	f.Exec("select penstock.enqueue('q', 'job', key => nullif($1, ''))", key)
	jobs := f.claim(1)
	if len(jobs) != 1 {
		f.Fatal("no job")
	}
	return jobs[0].lease
}

// A session is stopped between asking which segments are listed and looking into them, for as
// long as their ring takes to turn. The lease has moved by then, and is found.
func TestLeaseThatMovesWhileItIsLookedFor(t *testing.T) {
	t.Parallel()
	for name, sql := range endings {
		for _, key := range []string{"", "k"} {
			if name == "claim" || name == "ack" && key == "" {
				continue // it has the ring locked by then, or asks for no list
			}
			if name == "ack_many" {
				sql = "select count(*) from penstock.ack_many('q', array[$1::bigint, 0])" // one alone asks for no list
			}
			t.Run(fmt.Sprintf("%s/key=%q", name, key), func(t *testing.T) {
				t.Parallel()
				f := newJobs(t, "fifo")
				f.Exec(`create function read_and_wait(register regclass) returns int[] language plpgsql as $$
					declare listed constant int[] := case pg_sequence_last_value(register) when 0 then '{0}' when 1 then '{1}' when 2 then '{1,0}' else '{0,1}' end;
					begin
						perform pg_advisory_xact_lock_shared(1);
						return listed;
					end $$;
					create or replace function penstock._listed(register regclass) returns int[] language sql as 'select public.read_and_wait(register)'`, pgx.QueryExecModeSimpleProtocol)
				lease := f.leaseOne(key)
				gate := f.begin(f.Connect())
				f.exec(gate.Conn(), "select pg_advisory_xact_lock(1)")
				stopped := f.Connect()
				found := make(chan int, 1)
				ended := make(chan error, 1)
				go func() {
					var n int
					err := stopped.QueryRow(f.Ctx, sql, lease).Scan(&n)
					found <- n
					ended <- err
				}()
				f.Eventually("it is stopped", func() bool {
					return f.Number("select count(*) from pg_locks where pid = $1 and not granted and locktype = 'advisory'", stopped.PgConn().PID()) == 1
				})
				f.Eventually("the ring has turned", func() bool {
					f.turnLeases()
					return f.Number("select count(*) from penstock._lease_1") == 1 && f.Number("select pg_relation_size('penstock._lease_0')") == 0
				})
				f.Must(gate.Rollback(f.Ctx))
				n := <-found
				f.Must(<-ended)
				if n != 1 {
					t.Errorf("it found %d leases, want the one", n)
				}
			})
		}
	}
}

// A transaction that keeps its snapshot may be told to run again where a lease has moved since, and not
// that the lease is lost. One that is lost is so for the transaction that runs again.
func TestLeaseThatMovedSinceTheSnapshot(t *testing.T) {
	t.Parallel()
	for name, sql := range endings {
		if name == "claim" { // jobs are taken in READ COMMITTED
			continue
		}
		for _, c := range []struct {
			level  pgx.TxIsoLevel
			shared bool // the lease's row is of several
		}{{pgx.RepeatableRead, false}, {pgx.RepeatableRead, true}, {pgx.Serializable, false}} {
			if c.level == pgx.Serializable && name != "ack" {
				continue // its snapshot is the same
			}
			t.Run(fmt.Sprintf("%s/%s/shared=%v", name, c.level, c.shared), func(t *testing.T) {
				t.Parallel()
				f := newJobs(t, "fifo")
				conn := f.Connect()
				claim := func() int64 {
					if c.shared {
						return f.leaseTogether()[1]
					}
					return f.leaseOne("")
				}
				try := func(lease int64, meanwhile func()) (n int, code string) {
					tx, err := conn.BeginTx(f.Ctx, pgx.TxOptions{IsoLevel: c.level})
					f.Must(err)
					defer func() { _ = tx.Rollback(f.Ctx) }()
					_, err = tx.Exec(f.Ctx, "select count(*) from pg_class")
					f.Must(err)
					meanwhile()
					err = tx.QueryRow(f.Ctx, sql, lease).Scan(&n)
					if err == nil {
						err = tx.Commit(f.Ctx)
					} else if pgerror.State(err) == "" {
						t.Fatal(err)
					}
					return n, pgerror.State(err)
				}
				again := 0
				for steps := range 7 { // from none to those of more than a whole turn: it is full, moved, left, not listed, truncated, full
					for f.Number("select pg_sequence_last_value('penstock._lease_slot')") > 1 ||
						f.Number("select least(pg_relation_size('penstock._lease_0'), pg_relation_size('penstock._lease_1'))") > 0 {
						f.turnLeases()
					}
					lease := claim()
					n, code := try(lease, func() {
						for range steps {
							f.turnLeases()
						}
					})
					if code == "40001" {
						again++
						n, code = try(lease, func() {})
					}
					if n != 1 || code != "" {
						t.Errorf("after %d steps: %d leases were found, %q; want the one", steps, n, code)
					}
					f.Exec("delete from penstock._lease") // what was extended, and others of the claim
				}
				if again == 0 { // mostly four; a step does nothing while autovacuum has the table
					t.Error("none had to run again, want those that missed a move")
				}
				lease := claim()
				f.Exec("select penstock.ack('q', $1)", lease)
				if n, code := try(lease, func() {}); n != 0 || code != "" && code != "PS001" {
					t.Errorf("a lease that is lost: %d were found, %q", n, code)
				}
			})
		}
	}
}
