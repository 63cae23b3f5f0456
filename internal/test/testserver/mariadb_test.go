package testserver

import (
	"database/sql"
	"net/url"
	"testing"

	_ "github.com/go-sql-driver/mysql"
)

func TestMariaDBKeepsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	m, err := NewMariaDB()
	need(t, err)
	t.Cleanup(func() { closeAfter(t, m.server) })
	for _, statement := range []string{"create database kept", "create table kept.inno (i int primary key) engine=innodb", "create table kept.rocks (i int primary key) engine=rocksdb"} {
		if err := onMariaDB(t.Context(), m.URL, statement); err != nil {
			t.Fatal(err)
		}
	}
	u, err := url.Parse(m.URL)
	if err != nil {
		t.Fatal(err)
	}
	for n, end := range []func() error{m.Stop, m.Kill} {
		for _, table := range []string{"inno", "rocks"} {
			if err := onMariaDB(t.Context(), m.URL, "insert into kept."+table+" select count(*) from kept."+table); err != nil {
				t.Fatal(err)
			}
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := m.ping(t.Context()); err == nil {
			t.Fatal("the server still answers")
		}
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
		db, err := sql.Open("mysql", "root@tcp("+u.Host+")/kept")
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"inno", "rocks"} {
			var rows int
			if err := db.QueryRowContext(t.Context(), "select count(*) from "+table).Scan(&rows); err != nil || rows != n+1 {
				t.Errorf("%s has %d rows after round %d: %v", table, rows, n, err)
			}
		}
		db.Close()
	}
}
