package mysql_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// migrated is a store in a separate database.
func migrated(t *testing.T, url string) *mysql.Store {
	schema, _ := databaseOf(t, url)
	s := openStore(t, url, mysql.Options{Schema: schema})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// reader is a subscription of an outbox that is made.
func reader(t *testing.T, s *mysql.Store, outbox string) driver.Source {
	if err := s.CreateOutbox(t.Context(), outbox); err != nil {
		t.Fatal(err)
	}
	src, err := s.Subscribe(t.Context(), driver.Subscribe{Outbox: outbox, Subscription: "s"})
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func fetch(t *testing.T, src driver.Source, limit int) driver.Batch {
	b, err := src.Fetch(t.Context(), driver.Limit{Messages: limit, Bytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A table is made and dropped while a transaction is open. More of that at a time than the pool has connections
// ends all the same.
func TestManyAreDefinedAtOnce(t *testing.T) {
	t.Parallel()
	s := migrated(t, testserver.MariaDBDatabase(t))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for i := range 30 {
		all.Go(func() {
			name := fmt.Sprint("outbox", i)
			if err := s.CreateOutbox(ctx, name); err != nil {
				t.Error(err)
			}
			if err := s.DropOutbox(ctx, name); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
