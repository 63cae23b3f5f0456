package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// unidentified are the tables that the publication of all tables, which every test's database has, makes read-only.
const unidentified = `select coalesce(string_agg(c.oid::regclass::text, ' '), '') from pg_class c
	where c.relnamespace = 'penstock'::regnamespace and c.relkind = 'r' and c.relreplident = 'd'
	  and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)`

// A database with logical replication mostly has a publication of all tables: then PostgreSQL
// refuses UPDATE and DELETE on those without replica identity.
func TestTablesUnderAPublicationOfAll(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Must(f.store.CreateInbox(f.Ctx, "billing", time.Hour))
	f.wantText("true", "select exists (select from pg_publication where puballtables)::text")
	f.wantText("", unidentified)
	f.Exec("select penstock.enqueue('q', x::text) from generate_series(1, 4) x")
	f.wantClaim(1, 1)
	f.Exec("select penstock.ack('q', (select lease from penstock._lease))")
	f.Exec("select penstock.dequeue('q')")
	f.Exec("select penstock.retry('q', lease, '1 ms') from penstock.claim('q')")
	f.expire()
	f.ripen()
	f.Exec("select penstock.enqueue('q', 'x')")
	f.Exec(`alter table penstock."_q.0" replica identity nothing`)
	if _, err := f.store.Queue("q").Claim(f.Ctx, driver.Claim{Jobs: 1, Lease: time.Hour}); err == nil ||
		errors.Is(err, penstock.ErrLeaseLost) || !strings.Contains(err.Error(), "55000") {
		t.Errorf("got %v, want SQLSTATE 55000 and no lost lease", err)
	}
	f.Exec("select penstock.drop_queue('q')")
}
