package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/descriptor"
	"github.com/penstock/penstock/internal/test/adopttest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// others are tables that an application made.
var others = map[string][]string{
	adopttest.Shop: {`create table shop (id bigint not null auto_increment primary key, part varchar(2000), kind varchar(100) not null default 't', body text not null,
		extra json, state varchar(20) not null default 'pending', done_at datetime(6), failure varchar(40), tries int not null default 0, at datetime(6) not null default (utc_timestamp(6)), key at (at, id), key waits (done_at, id))`},
	adopttest.Letters:  {"create table letters (ts timestamp(6) not null default current_timestamp(6), id bigint not null auto_increment, message text, primary key (ts, id), key (id))"},
	adopttest.Marked:   {"create table marked (id uuid primary key, at datetime(3) not null, body text, done_at datetime, key waits (done_at, at, id))"},
	adopttest.Coded:    {"create table coded (id char(26) character set latin1 primary key, at datetime(6) not null default (utc_timestamp(6)), body text, sent boolean not null default false, key at (at, id))"},
	adopttest.Long:     {"create table long_ids (id varchar(701) character set ascii primary key, at datetime(6) not null, body text, unique key (at, id))"},
	adopttest.Bare:     {"create table bare (id bigint primary key, at datetime(6), body text)"},
	adopttest.Counters: {"create table counters (name varchar(20) primary key, n bigint not null)"},
}

func TestAdoptInnoDB(t *testing.T) { adoptSuite(t, "InnoDB") }

func TestAdoptMyRocks(t *testing.T) { adoptSuite(t, "RocksDB", adopttest.Engine...) }

func adoptSuite(t *testing.T, engine string, only ...string) {
	t.Parallel()
	has(t, engine)
	adopttest.Run(t, func(t testing.TB) adopttest.Instance {
		of := testserver.MariaDBDatabase(t)
		schema, _ := databaseOf(t, of)
		db := application(t, of)
		opts := mysql.Options{Engine: engine, Schema: schema}
		store := openStore(t, of, opts)
		if err := store.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(of)
		if err != nil {
			t.Fatal(err)
		}
		return adopttest.Instance{
			Open: func(subscription string, c mysql.AdoptConfig) (descriptor.Adopted, error) {
				return mysql.Adopt(u.String(), opts, subscription, c)
			},
			Begin: func(ctx context.Context) (adopttest.Tx, error) {
				tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
				return ownTx{tx}, err
			},
			Define: func(t testing.TB, name string) {
				for _, statement := range others[name] {
					if ofMySQL(t) { // it has no such type
						statement = strings.ReplaceAll(statement, " uuid ", " char(36) ")
					}
					if _, err := db.Exec(statement + " engine = " + engine); err != nil {
						t.Fatalf("%s: %v", statement, err)
					}
				}
			},
			Adoptions: store.Adoptions,
			IDsGrow:   true,
			Ago: func(d time.Duration) string {
				return fmt.Sprintf("(utc_timestamp(6) - interval %d microsecond)", d.Microseconds())
			},
		}
	}, only...)
}

// ownTx is a transaction of an application.
type ownTx struct{ *sql.Tx }

func (t ownTx) Exec(ctx context.Context, statement string) error {
	_, err := t.ExecContext(ctx, statement)
	return err
}

func (t ownTx) Number(ctx context.Context, statement string) (n int, err error) {
	return n, t.QueryRowContext(ctx, statement).Scan(&n)
}
