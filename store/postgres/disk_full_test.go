package postgres_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/store/postgres"
)

// diskFull is PostgreSQL's error of a file that cannot grow.
const diskFull = "53100"

// The disk on which a queue lies is full. With a little room left the space of taken jobs is given back, and all continues
// by itself. Without any, a worker that takes jobs is told, and status shows which maintenance failed. Once there is room
// all continues. No job is lost, and none comes twice.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	t.Run("but for a little", func(t *testing.T) {
		t.Parallel()
		d := newSmallDisk(t)
		ballast := d.write("ballast", 1<<20)
		d.fill()
		d.Must(os.Remove(ballast))
		d.wantAllToGoOn()
	})
	t.Run("while jobs wait", func(t *testing.T) {
		t.Parallel()
		d := newSmallDisk(t)
		ballast := d.write("ballast", 1<<20)
		d.fill()
		d.write("more", 0)
		if err := d.takeWhatCanBeTaken(); err == nil && len(d.taken) < d.enqueued {
			t.Error("no more jobs come, and no error")
		}
		d.Must(os.Remove(ballast))
		d.wantAllToGoOn()
	})
	t.Run("when all jobs are taken", func(t *testing.T) {
		t.Parallel()
		d := newSmallDisk(t)
		d.enqueue(10_000)
		maintenance := d.begin(d.Connect()) // as if it had been held up
		d.exec(maintenance.Conn(), "select pg_advisory_xact_lock('penstock._queue'::regclass::oid::int, id) from penstock._queue")
		d.Must(d.takeWhatCanBeTaken())
		ballast := d.write("ballast", 0)
		d.Must(maintenance.Rollback(d.Ctx))
		d.Eventually("status says what is wrong", func() bool {
			d.maintain()
			return strings.Contains(strings.Join(d.trouble(), "; "), "No space left on device")
		})
		d.Must(os.Remove(ballast))
		d.wantAllToGoOn()
	})
}

// wantAllToGoOn sees all jobs taken, their space given back, and the queue in use as before.
func (d *smallDisk) wantAllToGoOn() {
	d.Helper()
	for range 2 {
		d.Eventually("all is taken and its space given back", func() bool {
			if err := d.takeWhatCanBeTaken(); err != nil {
				d.Logf("%d of %d were taken: %v", len(d.taken), d.enqueued, err)
			}
			d.maintain()
			return len(d.taken) >= d.enqueued &&
				d.Number("select sum(pg_relation_size(inhrelid))::bigint from pg_inherits where inhparent = 'penstock.q'::regclass") == 0
		})
		if trouble := d.trouble(); len(trouble) > 0 {
			d.Errorf("there is room, and status says %q", trouble)
		}
		slices.Sort(d.taken)
		for i, job := range d.taken {
			if job != i+1 {
				d.Fatalf("of %d jobs %d were taken, and job %d is not there, or twice", d.enqueued, len(d.taken), i+1)
			}
		}
		d.enqueue(1000)
	}
}

// smallDisk is a database with the queue "q" on a disk of 32 MiB.
type smallDisk struct {
	*fixture
	dir      string
	enqueued int
	taken    []int
}

func newSmallDisk(t *testing.T) *smallDisk {
	url, dir := postgrestest.SmallDisk(t)
	d := &smallDisk{fixture: fixtureOn(t, url, postgres.Options{}), dir: dir}
	d.Exec("select penstock.create_queue('q', 'fifo', 8, 1048576)")
	return d
}

func (d *smallDisk) enqueue(n int) {
	d.Helper()
	d.Must(d.tryToEnqueue(n))
}

func (d *smallDisk) tryToEnqueue(n int) error {
	_, err := d.Conn.Exec(d.Ctx, `insert into penstock.q (payload) select convert_to(rpad(i::text || ' ', 1000), 'UTF8') from generate_series($1::int, $2::int) i`,
		d.enqueued+1, d.enqueued+n)
	if err == nil {
		d.enqueued += n
	}
	return err
}

// fill enqueues jobs until no more can be.
func (d *smallDisk) fill() {
	d.Helper()
	for n := 256; n > 0; {
		err := d.tryToEnqueue(n)
		if pgerror.State(err) == diskFull {
			n /= 2
		} else {
			d.Must(err)
		}
	}
}

// write makes a file of size bytes; 0: of all that is left.
func (d *smallDisk) write(name string, size int) (path string) {
	d.Helper()
	path, err := postgrestest.Ballast(d.dir, name, size)
	d.Must(err)
	return path
}

// takeWhatCanBeTaken takes jobs until none is left, or the disk keeps it from that.
func (d *smallDisk) takeWhatCanBeTaken() error {
	d.Helper()
	for {
		rows, _ := d.Conn.Query(d.Ctx, "select split_part(convert_from(payload, 'UTF8'), ' ', 1)::int from penstock.dequeue('q', 100)")
		got, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if pgerror.State(err) == diskFull {
			return err
		}
		d.Must(err)
		if len(got) == 0 {
			return nil
		}
		d.taken = append(d.taken, got...)
	}
}

// maintain is what workers do every second.
func (d *smallDisk) maintain() {
	d.Helper()
	_, err := d.Conn.Exec(d.Ctx, `select setval('penstock."_q.seen"', pg_sequence_last_value('penstock."_q.seen"') & 268435455); `+maintainAtOnce, pgx.QueryExecModeSimpleProtocol)
	if pgerror.State(err) == diskFull {
		_, err = d.Conn.Exec(d.Ctx, "rollback")
	}
	d.Must(err)
}

func (d *smallDisk) trouble() []string {
	d.Helper()
	all, err := d.store.QueueStatus(d.Ctx)
	d.Must(err)
	return all[0].Trouble
}
