package testserver

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestTemplate(t *testing.T) {
	var filled atomic.Int32
	template := &Template{Fill: func(url string) error {
		filled.Add(1)
		return execute(url, "create table t (id int generated always as identity); insert into t default values")
	}}
	t.Run("copies", func(t *testing.T) {
		for range 4 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				db := template.Database(t)
				if n := query[int](t, db, "insert into t default values returning id"); n != 2 {
					t.Errorf("the first row of a copy has the number %d, want 2", n)
				}
			})
		}
	})
	if n := filled.Load(); n != 1 {
		t.Errorf("filled %d times", n)
	}
	u, err := url.Parse(template.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	if u.Path == "/"+template.name {
		t.Error("a test was given the template itself")
	}
	u.Path = "/" + template.name
	if conn, err := pgx.Connect(t.Context(), u.String()); err == nil {
		_ = conn.Close(context.WithoutCancel(t.Context()))
		t.Error("a session in the template would be in the way of those who copy it")
	}
	for range 2 {
		if err := template.Drop(); err != nil {
			t.Error(err)
		}
	}
	if n := query[int](t, PostgresURL(t), "select count(*) from pg_database where datname = '"+template.name+"'"); n != 0 {
		t.Error("the template is still there after Drop")
	}
}

// All that PENSTOCK_TEST_POSTGRES promises is a role that may create databases and roles.
func TestTemplateOfAnOrdinaryRole(t *testing.T) {
	server := StartPostgres(t)
	if err := execute(server.URL, "create role ordinary login createdb"); err != nil {
		t.Fatal(err)
	}
	t.Setenv(EnvPostgres, strings.Replace(server.URL, "postgres@", "ordinary@", 1))
	template := &Template{Fill: func(url string) error { return execute(url, "create table t (n int)") }}
	if n := query[int](t, template.Database(t), "select count(*) from t"); n != 0 {
		t.Errorf("%d rows", n)
	}
	if err := template.Drop(); err != nil {
		t.Error(err)
	}
}

func TestTemplateThatCannotBeFilled(t *testing.T) {
	server, broken, filled := PostgresURL(t), errors.New("the third migration fails"), 0
	template := &Template{Fill: func(string) error { filled++; return broken }}
	for range 2 { // each test that needs a copy explains why there is none
		if err := template.ready(server); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
	if filled != 1 {
		t.Errorf("filled %d times", filled)
	}
	if err := template.Drop(); err != nil {
		t.Error(err)
	}
	if n := query[int](t, server, "select count(*) from pg_database where datname = '"+template.name+"'"); n != 0 {
		t.Error("what Fill left is still there after Drop")
	}
}
