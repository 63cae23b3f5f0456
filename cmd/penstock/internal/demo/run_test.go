package demo

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
	"github.com/penstock/penstock/store/sqlite"
)

func TestRun(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	flights, err := Sample(600)
	if err != nil {
		t.Fatal(err)
	}
	var last Progress
	result, err := Run(t.Context(), Config{
		Flights: flights, Producers: 3, Rollback: 0.2, Seed: 7, Log: slog.New(slog.DiscardHandler),
		Progress: func(p Progress) { last = p },
	})
	if err != nil {
		t.Fatal(err)
	}
	if !result.OK() || result.Published+result.RolledBack != 600 || result.Delivered != result.Published || result.Unread || result.GaveUp {
		t.Errorf("result is %+v", result)
	}
	if result.CommitsPerSecond <= 0 || result.WrittenPerSecond() <= 0 {
		t.Errorf("commits %v/s, written %v/s", result.CommitsPerSecond, result.WrittenPerSecond())
	}
	if last.Total != 600 || last.Committed != int64(result.Published) || last.Delivered < int64(result.Delivered) {
		t.Errorf("the last progress is %+v, the result %+v", last, result)
	}
}

func TestRunWithASinkThatCannotBeRead(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	flights, err := Sample(50)
	if err != nil {
		t.Fatal(err)
	}
	result, err := Run(t.Context(), Config{Flights: flights, Sink: "discard", Log: slog.New(slog.DiscardHandler)})
	if err != nil || !result.Unread || result.Delivered != 50 {
		t.Errorf("result is %+v, %v", result, err)
	}
}

// The flights are in a database of the run's, which is dropped, as is that of the outbox.
func TestRunOnMariaDB(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	flights, err := Sample(100)
	if err != nil {
		t.Fatal(err)
	}
	url := testserver.MariaDBURL(t)
	result, err := Run(t.Context(), Config{Flights: flights, DatabaseURL: url, Producers: 3, Rollback: 0.2, Log: slog.New(slog.DiscardHandler)})
	if err != nil || !result.OK() || result.Published+result.RolledBack != 100 || result.RolledBack == 0 || result.Delivered != result.Published {
		t.Errorf("result is %+v, %v", result, err)
	}
	db, err := mysql.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var left int
	if err := db.QueryRowContext(t.Context(), `select count(*) from information_schema.schemata where schema_name like 'penstock\_demo\_%'`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d databases are left, %v", left, err)
	}
}

// If the URL has several brokers, the consumer reads from one that answers, as the sink does.
func TestRunOnOneOfTwoHosts(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	flights, err := Sample(50)
	if err != nil {
		t.Fatal(err)
	}
	before, broker, _ := strings.Cut(testserver.RabbitMQURL(t), "@")
	for _, hosts := range []string{"127.0.0.1:1," + broker, strings.TrimSuffix(broker, "/") + ",127.0.0.1:1/"} {
		result, err := Run(t.Context(), Config{Flights: flights, Sink: before + "@" + hosts, Log: slog.New(slog.DiscardHandler)})
		if err != nil || !result.OK() || result.Delivered != 50 {
			t.Errorf("%s: result is %+v, %v", hosts, result, err)
		}
	}
}

func TestBoundedBy(t *testing.T) {
	for want, r := range map[Bound]Result{
		BoundByDelivery:   {Checked: Checked{Published: 1000}, Writing: time.Second, Elapsed: 2 * time.Second, CommitsPerSecond: 1100},
		BoundByRate:       {Checked: Checked{Published: 700}, RolledBack: 300, Writing: time.Second, Elapsed: time.Second, Rate: 1000, CommitsPerSecond: 1100},
		BoundByCommits:    {Checked: Checked{Published: 1000}, Writing: time.Second, Elapsed: time.Second, CommitsPerSecond: 1900},
		BoundByStatements: {Checked: Checked{Published: 1000}, Writing: time.Second, Elapsed: time.Second, CommitsPerSecond: 2100},
	} {
		if got := r.BoundedBy(); got != want {
			t.Errorf("bounded by %s, want %s", got, want)
		}
	}
}

// The seed decides which transactions roll back, whatever runs them.
func TestRollsBack(t *testing.T) {
	count := 0
	for flight := range int64(10_000) {
		first, again := rollsBack(1, flight, 0.1), rollsBack(1, flight, 0.1)
		if first != again {
			t.Fatal("it does not decide the same way twice")
		}
		if first {
			count++
		}
		if rollsBack(1, flight, 0) || !rollsBack(1, flight, 1) {
			t.Fatal("0 means none and 1 means all")
		}
	}
	if count < 900 || count > 1100 {
		t.Errorf("%d of 10000 roll back, want about 1000", count)
	}
}

// A producer's transaction that was interrupted may end while its tables are dropped.
func TestRemoveInADeadlock(t *testing.T) {
	url := testserver.Database(t, testserver.PostgresURL(t))
	a, err := NewPostgresAirline(t.Context(), url, "airline", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "create table airline.third (id int)"); err != nil {
		t.Fatal(err)
	}
	if err := testserver.DropInDeadlock(t, url, "airline", func() error { return a.Remove(t.Context()) }); err != nil {
		t.Error(err)
	}
}

// If the relay cannot begin, for example because of a pooler, the run ends with that error. It does not wait, and reports
// nothing as lost.
func TestTheRelaysErrorEndsTheRun(t *testing.T) {
	flights, err := Sample(5)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "test.db")
	_, err = Run(t.Context(), Config{Flights: flights, DatabaseURL: "sqlite:" + file, Patience: time.Hour, Log: slog.New(slog.DiscardHandler),
		Opened: func(ctx context.Context, _, _ string) error {
			db, err := sqlite.OpenDB(file)
			if err != nil {
				return err
			}
			defer db.Close()
			_, err = db.ExecContext(ctx, "create trigger refused before insert on penstock_subscriptions begin select raise(abort, 'no relay today'); end")
			return err
		},
	})
	if err == nil || !strings.Contains(err.Error(), "the relay cannot begin: ") || !strings.Contains(err.Error(), "no relay today") {
		t.Errorf("got %v", err)
	}
}
