package mysql_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// A process that is paused, or cut off, in the middle of a transaction keeps others waiting for some seconds, and not until it goes on.
func TestPausedWithinATransaction(t *testing.T) {
	t.Parallel()
	url := testserver.MariaDBDatabase(t)
	schema, host := databaseOf(t, url)
	s := openStore(t, url, mysql.Options{Schema: schema})
	must(t, s.Migrate(t.Context()), s.CreateOutbox(t.Context(), "orders"))
	p := &wireProxy{}
	paused := openStore(t, "mysql://root@"+p.through(t, host)+"/", mysql.Options{Schema: schema})
	reached, goOn := make(chan struct{}), make(chan struct{})
	p.decide = func(text []byte) fault {
		if bytes.Contains(text, []byte("set epoch = epoch + 1")) {
			close(reached)
			<-goOn
			return cutBefore
		}
		return pass
	}
	ended := make(chan error)
	ask := driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "paused"}
	go func() {
		_, err := paused.Subscribe(context.Background(), ask)
		ended <- err
	}()
	<-reached
	ask.Holder = "another"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := s.Subscribe(ctx, ask)
	close(goOn)
	if another := <-ended; err != nil || another == nil {
		t.Errorf("another relay: %v; the one that was paused: %v, want an error", err, another)
	}
}
