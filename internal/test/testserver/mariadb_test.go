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
	engines := []string{"innodb", "rocksdb"}
	if ofMySQL() {
		engines = engines[:1]
	}
	statements := []string{"create database kept"}
	for _, engine := range engines {
		statements = append(statements, "create table kept."+engine+" (i int primary key) engine="+engine)
	}
	for _, statement := range statements {
		if err := onMariaDB(t.Context(), m.URL, statement); err != nil {
			t.Fatal(err)
		}
	}
	u, err := url.Parse(m.URL)
	if err != nil {
		t.Fatal(err)
	}
	for n, end := range []func() error{m.Stop, m.Kill} {
		for _, table := range engines {
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
		for _, table := range engines {
			var rows int
			if err := db.QueryRowContext(t.Context(), "select count(*) from "+table).Scan(&rows); err != nil || rows != n+1 {
				t.Errorf("%s has %d rows after round %d: %v", table, rows, n, err)
			}
		}
		db.Close()
	}
}
