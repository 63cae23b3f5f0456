package postgrestest_test

import (
	"os"
	"testing"

	"github.com/penstock/penstock/internal/test/postgrestest"
)

// A package's tests share a server, which is started where PENSTOCK_TEST_POSTGRES names none; each has a separate database.
func ExampleRun() {
	_ = func(m *testing.M) { os.Exit(postgrestest.Run(m)) } // TestMain
	_ = func(t *testing.T) {                                // a test
		db := postgrestest.New(t)
		db.Exec("select penstock.create_outbox('orders')")
		db.Exec("insert into penstock.orders (topic, payload) values ('order.placed', '{}')")
		if n := db.Number("select count(*) from penstock.orders"); n != 1 {
			t.Errorf("%d messages", n)
		}
	}
}
