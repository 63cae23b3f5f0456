package drivers

import (
	"database/sql"
	"reflect"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock/store/mysql"
	"github.com/penstock/penstock/store/portable"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/sqlite"
)

// If a store takes a transaction, passing a pool or a connection does not compile: it would commit each statement
// separately.
func TestNoPoolForATransaction(t *testing.T) {
	pools := []reflect.Type{reflect.TypeFor[*pgxpool.Pool](), reflect.TypeFor[*pgxpool.Conn](), reflect.TypeFor[*pgx.Conn](), reflect.TypeFor[*sql.DB](), reflect.TypeFor[*sql.Conn]()}
	transactions := []reflect.Type{reflect.TypeFor[pgx.Tx](), reflect.TypeFor[*sql.Tx]()}
	for store, types := range map[string][]reflect.Type{
		"postgres": {reflect.TypeFor[*postgres.Outbox](), reflect.TypeFor[*postgres.Queue](), reflect.TypeFor[*postgres.Inbox]()},
		"portable": {reflect.TypeFor[*portable.Outbox](), reflect.TypeFor[*portable.Queue](), reflect.TypeFor[*portable.Inbox]()},
		"sqlite":   {reflect.TypeFor[*sqlite.Outbox](), reflect.TypeFor[*sqlite.Queue](), reflect.TypeFor[*sqlite.Inbox]()},
		"mysql":    {reflect.TypeFor[*mysql.Outbox](), reflect.TypeFor[*mysql.Queue](), reflect.TypeFor[*mysql.Inbox]()},
	} {
		takes := map[string]bool{}
		for _, of := range types {
			for m := range of.Methods() {
				for in := range m.Type.Ins() {
					passes := func(given reflect.Type) bool { return given.AssignableTo(in) }
					if !slices.ContainsFunc(transactions, passes) || in == reflect.TypeFor[any]() { // a value of a column
						continue
					}
					takes[m.Name] = true
					if i := slices.IndexFunc(pools, passes); i >= 0 {
						t.Errorf("%s: %s.%s takes a transaction, and also a %s", store, of.Elem().Name(), m.Name, pools[i])
					}
				}
			}
		}
		for _, name := range []string{"PublishTx", "EnqueueTx", "First", "FirstOf", "InOrder", "Due"} {
			if !takes[name] {
				t.Errorf("%s: %s takes no transaction", store, name)
			}
		}
	}
}
