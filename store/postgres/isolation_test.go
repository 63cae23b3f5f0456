package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/queuetest"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/postgres"
)

// level is how the transactions of applications are: at a level that is their database's default, and committed
// in two phases. The owner, which is not a superuser, does everything, in a schema of an odd name; see owned.
type level struct{ isolation string }

// levels are those of this run: the strictest, and in the long form each.
func levels() []level {
	all := []level{{"serializable"}, {"repeatable read"}, {"read committed"}}
	if testseed.Long() {
		return all
	}
	return all[:1]
}

func TestStoreAtOtherIsolationLevels(t *testing.T) {
	t.Parallel()
	for _, m := range levels() {
		t.Run(m.isolation, m.runStore)
	}
}

func TestQueueAtOtherIsolationLevels(t *testing.T) {
	t.Parallel()
	for _, m := range levels() {
		t.Run(m.isolation, m.runQueue)
	}
}

var smallOdd = postgres.Options{Schema: oddSchema, Segments: small.Segments, SegmentBytes: small.SegmentBytes}

// database is one of that level, as its owner. Some cases end otherwise by intent where a
// transaction has one snapshot: PostgreSQL refuses a second update of a row (40001), and
// Penstock a dedup_key (25001).
func (m level) database(t testing.TB) string {
	for _, c := range []string{"/Order/EarlyIdentifierCommitsLast", "/Order/RowLockedWriters", "/Dedup/Rollback", "/Dedup/Told"} {
		if m.isolation != "read committed" && strings.Contains(t.Name(), c) {
			t.Skip("not at the level " + m.isolation)
		}
	}
	url := ownedDatabase(t)
	db := postgrestest.On(t, url)
	if db.Number("select setting::int from pg_settings where name = 'max_prepared_transactions'") == 0 {
		t.Skip("the server has max_prepared_transactions = 0")
	}
	db.Exec(fmt.Sprintf("do $$ begin execute format('alter database %%I set default_transaction_isolation = %%L', current_database(), '%s'); end $$", m.isolation))
	return asRole(url, owner)
}

func (m level) runStore(t *testing.T) {
	open := func(t testing.TB) storetest.Instance {
		instance := openInstance(t, m.database(t), smallOdd)
		begin := instance.Begin
		instance.Begin = func(ctx context.Context) (storetest.Tx, error) {
			tx, err := begin(ctx)
			if err == nil {
				tx.(*businessTx).prepared = true
			}
			return tx, err
		}
		return instance
	}
	storetest.Run(t, storetest.Harness{
		Open: func(t testing.TB) storetest.Instance {
			instance := open(t)
			if err := instance.Store.(*postgres.Store).DropSchema(t.Context()); err != nil {
				t.Fatal(err)
			}
			return instance
		},
		OpenCreated: func(t testing.TB) storetest.Instance { return created(t, open(t)) },
		Features:    storetest.Features{ConcurrentWriters: true, Reclaim: true, Snapshots: true, Outage: true, SmallPieces: true},
		Only:        storetest.Isolated,
	})
}

func (m level) runQueue(t *testing.T) {
	queuetest.Run(t, queuetest.Harness{
		Open: func(t testing.TB) queuetest.Instance {
			instance := queueInstanceOn(t, m.database(t), smallOdd)
			begin := instance.Begin
			instance.Begin = func(ctx context.Context) (queuetest.Tx, error) {
				tx, err := begin(ctx)
				if err == nil {
					tx.(*enqueueTx).prepared = true
				}
				return tx, err
			}
			return instance
		},
		Features: queuetest.Features{ConcurrentWriters: true, Reclaim: true, Snapshots: true, Options: true, Unique: true, Barriers: true},
		Only:     queuetest.Isolated,
	})
}

// commitPrepared commits in two phases.
func commitPrepared(ctx context.Context, tx pgx.Tx) error {
	name := fmt.Sprintf("penstock test %016x", rand.Uint64())
	if _, err := tx.Exec(ctx, "prepare transaction '"+name+"'"); err != nil {
		return err
	}
	_, err := tx.Conn().Exec(ctx, "commit prepared '"+name+"'")
	return err
}
