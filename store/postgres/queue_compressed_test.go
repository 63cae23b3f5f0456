package postgres_test

import (
	"bytes"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/test/docblock"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// The jobs of a claim of many are written compressed: each is in the log as deleted, and in the row of its claim. If they still are many bytes, they
// are not in the row itself. A job of them that ends differently has its payload.
func TestAClaimOfManyIsCompressed(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	if f.Number("select count(*) from pg_settings where name = 'default_toast_compression' and 'lz4' = any (enumvals)") == 0 {
		f.Skip("this server was built without lz4")
	}
	f.Exec(`insert into penstock.q (payload)
		select convert_to(format('{"order": %s, "customer": "%s", "email": "user%s@example.com", "currency": "EUR", "placed_at": "2026-11-30T01:02:03.%sZ", "items": [{"sku": "A-%s", "n": 1}]}',
		                         i, md5(i::text), i * 7, 100000 + i * 7919 % 900000, i * 31), 'UTF8') from generate_series(1, 1000) i`)
	f.Exec("create table before as select seq, payload from penstock.q")
	toast := "select pg_relation_size(c.reltoastrelid) from pg_class c where c.oid = 'penstock._lease_0'::regclass"
	f.Exec("create table ten as select * from penstock.ack_claim('q', '{}', 10, lease => '1 h')")
	f.wantText("10", "select sum(cardinality(jobs)) from penstock._lease")
	whole := f.Number("select sum(octet_length(payload)) from ten")
	if n := f.Number("select sum(pg_column_size(jobs)) from penstock._lease"); n > whole*2/3 || f.Number(toast) != 0 {
		f.Errorf("the row of 10 jobs of %d bytes in all takes %d, and %d bytes of the other table", whole, n, f.Number(toast))
	}
	f.Exec("select penstock.ack_many('q', array(select lease from ten))")
	f.Exec("create table more as select * from penstock.ack_claim('q', '{}', 30, lease => '1 h')")
	if f.Number(toast) == 0 { // each ack of some of them would copy them
		f.Error("the row of 30 jobs has them with it")
	}
	f.Exec("select penstock.ack_many('q', array(select lease from more))")
	f.Exec("create table claimed as select * from penstock.ack_claim('q', '{}', 100, lease => '1 h')")
	f.wantText("100 1", "select concat_ws(' ', sum(cardinality(jobs)), count(*)) from penstock._lease where jobs is not null")
	whole = f.Number("select sum(octet_length(payload)) from claimed")
	if n := f.Number("select sum(pg_column_size(jobs)) from penstock._lease"); n > whole/2 {
		f.Errorf("the row of 100 jobs of %d bytes in all takes %d", whole, n)
	}
	f.wantText("100", "select count(*) from claimed c join before b on b.seq = c.id and b.payload = c.payload")
	f.Exec("select penstock.release('q', lease) from claimed where id = 50")
	f.wantText("true", "select (t.payload = b.payload)::text from penstock.q t join before b on b.seq = 50 where t.id = 50")
}

// A server without the method of the dump restores all from text. Otherwise it lacks the tables of leases, which a check names.
func TestARestoreWithoutTheCompression(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t)
	f := fixtureOn(t, testserver.Database(t, server.URL), postgres.Options{})
	file := filepath.Join(t.TempDir(), "shop.dump")
	f.Exec("select penstock.create_queue('q')")
	f.Exec("select penstock.enqueue('q', 'x') from generate_series(1, 50)")
	f.wantText("20", "select count(*)::text from penstock.ack_claim('q', '{}', 20, lease => '1 h')")
	run := func(name string, args ...string) string {
		cmd := osexec.CommandContext(f.Ctx, name, args...)
		cmd.Dir, cmd.Env = filepath.Dir(file), append(os.Environ(), "PATH="+server.Bin+":"+os.Getenv("PATH"))
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	run(pgDump(t, server), "--format=custom", "--compress=0", "--file="+file, f.URL)
	dump, err := os.ReadFile(file)
	f.Must(err)
	if bytes.Count(dump, []byte("SET COMPRESSION lz4")) != 2 {
		t.Skip("this server was built without lz4")
	}
	f.Must(os.WriteFile(file, bytes.ReplaceAll(dump, []byte("SET COMPRESSION lz4"), []byte("SET COMPRESSION lzX")), 0o600))
	text := strings.Replace(docblock.Of(t, "docs/operations/restore.md", "sh")[1], "--dbname=shop", "--dbname=$0", 1)
	for _, restore := range []struct {
		command     []string
		leased      int64
		differences []string
	}{
		{[]string{"pg_restore", "--dbname=$0", "shop.dump"}, 0, []string{"table _lease_0 is missing", "table _lease_1 is missing"}},
		{[]string{text}, 20, nil},
	} {
		copied := postgrestest.On(t, testserver.Database(t, server.URL))
		out := run("sh", "-c", strings.Join(restore.command, " "), copied.URL)
		if n := copied.Number("select coalesce(sum(cardinality(jobs)), 0) from penstock._lease"); n != restore.leased {
			t.Errorf("after %q %d jobs run, want %d\n%s", restore.command, n, restore.leased, out)
		}
		differences, err := openStore(t, copied.URL, postgres.Options{}).CheckSchema(f.Ctx)
		f.Must(err)
		missing := []string{}
		for _, d := range differences {
			if strings.HasPrefix(d, "the table") {
				missing = append(missing, d)
			}
		}
		wantDifferences(t, missing, restore.differences...)
	}
}
