package portable_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/portable"
)

// A process that is paused, or cut off, in the middle of a transaction keeps others waiting for some seconds, and not until it goes on.
func TestPausedWithinATransaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t, portable.Options{})
	p := &wireProxy{}
	paused := openStore(t, p.through(t, f.url), portable.Options{})
	_, err := paused.Status(t.Context())
	f.must(err)
	reached, goOn := make(chan struct{}), make(chan struct{})
	p.mu.Lock()
	p.decide = func(trip []byte) fault {
		if bytes.Contains(trip, []byte("set epoch = epoch + 1")) {
			close(reached)
			<-goOn
			return cutBefore
		}
		return pass
	}
	p.mu.Unlock()
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
	_, err = f.store.Subscribe(ctx, ask)
	close(goOn)
	if another := <-ended; err != nil || another == nil {
		t.Errorf("another relay: %v; the one that was paused: %v, want an error", err, another)
	}
}
