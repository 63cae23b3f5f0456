package postgres_test

import (
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// The server is killed around the last end of the jobs that hold a barrier, also while that end is prepared. The barrier opens once the end has
// committed, never before, and its job runs once.
func TestBarrierSurvivesCrashes(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t, "fsync = on")
	f := fixtureOn(t, server.URL, postgres.Options{})
	f.Must(f.store.CreateQueue(f.Ctx, "q", penstock.FIFO))
	crash := func() {
		t.Helper()
		f.Must(server.Kill())
		f.Must(server.Start())
		f.Conn = f.Connect()
	}
	ack := func(on querier, lease int64) {
		t.Helper()
		rows, err := on.Query(f.Ctx, "select penstock.ack('q', $1)", lease)
		f.Must(err)
		rows.Close()
		f.Must(rows.Err())
	}
	for _, end := range []string{"it has committed", "it has not", "it is prepared and commits", "it is prepared and rolls back", "another one commits behind a prepared one"} {
		f.heldBy("a", "b")
		jobs := f.claim(5)
		if len(jobs) != 2 {
			t.Fatalf("%s: claimed %+v", end, jobs)
		}
		first, last := jobs[0].lease, jobs[1].lease
		if end != "another one commits behind a prepared one" {
			ack(f.Conn, first)
		}
		tx := f.begin(f.Connect())
		ack(tx, last)
		switch end {
		case "it has committed":
			f.Must(tx.Commit(f.Ctx))
			crash()
		case "it has not":
			crash()
			f.wantClaim(5)
			ack(f.Conn, last)
		default:
			f.run(tx, "prepare transaction 'last'")
			crash()
			f.wantClaim(5)
			other := make(chan error, 1)
			if end == "another one commits behind a prepared one" {
				conn := f.Connect()
				go func() {
					_, err := conn.Exec(f.Ctx, "select penstock.ack('q', $1)", first)
					other <- err
				}()
				f.Eventually("it waits for the prepared one", func() bool {
					return f.Number("select count(*) from pg_locks where locktype = 'advisory' and not granted") == 1
				})
				f.wantClaim(5)
			} else {
				other <- nil
			}
			how := map[bool]string{true: "rollback", false: "commit"}[end == "it is prepared and rolls back"]
			f.Exec(how + " prepared 'last'")
			f.Must(<-other)
			if how == "rollback" {
				crash()
				f.wantClaim(5)
				ack(f.Conn, last)
			}
		}
		done := f.claim(5)
		if len(done) != 1 {
			t.Fatalf("%s: %d jobs run after the last end, want the one that waits", end, len(done))
		}
		ack(f.Conn, done[0].lease)
		f.wantClaim(5)
		if n := f.Number("select count(*) from penstock._scheduled"); n != 0 {
			t.Errorf("%s: %d jobs wait", end, n)
		}
	}
}
