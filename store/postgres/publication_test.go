package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
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
	f.Exec("select penstock.drop_queue('q')")
}

// Queues from before have segments without it.
func TestQueuesFromBeforeGetReplicaIdentity(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'x')")
	f.Exec(`do $$
		declare
			made regclass;
		begin
			for made in select i.indexrelid from pg_index i join pg_class c on c.oid = i.indrelid
			             where c.relname ~ '^_(q[.]|lease_)' and i.indisreplident loop
				execute format('alter table %s replica identity default', (select indrelid::regclass from pg_index where indexrelid = made));
				execute 'drop index ' || made;
			end loop;
		end $$`)
	f.Exec("create index on penstock._lease (lease)")
	f.Exec("create index on penstock.q (grp, priority, seq)")
	f.Exec("alter table penstock._cursor drop column ahead; alter table penstock._replay drop column ahead, drop column besides, drop column if exists others") // what comes after 60 and cannot be done twice
	f.Exec("delete from penstock._migration where version_id >= 60")
	f.Exec("select penstock.enqueue('q', 'y')")
	_, err := f.Conn.Exec(f.Ctx, "select penstock.dequeue_q()")
	if err == nil || !strings.Contains(err.Error(), "replica identity") {
		t.Fatalf("got %v, want what PostgreSQL says", err)
	}
	if _, err := f.store.Queue("q").Claim(f.Ctx, penstock.Claim{Jobs: 1, Lease: time.Hour}); err == nil ||
		errors.Is(err, penstock.ErrLeaseLost) || !strings.Contains(err.Error(), "55000") {
		t.Errorf("got %v, want SQLSTATE 55000 and no lost lease", err)
	}
	f.Must(f.store.Migrate(f.Ctx))
	f.wantText("", unidentified)
	f.wantClaim(9, 1, 2)
}
