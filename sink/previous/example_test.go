package previous_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/previous"
	"github.com/penstock/penstock/sink/stdout"
)

// Each message of a key names the one before it, from the second on.
func ExampleWrap() {
	sink := previous.Wrap(stdout.New(os.Stdout), 0)
	for seq, key := range []string{"ann", "bob", "ann"} {
		sink.Send(context.Background(), []penstock.Message{{
			ID: fmt.Sprint("m", seq), Seq: int64(seq), Key: key, CreatedAt: time.Date(2026, 5, 4, 3, 2, seq, 0, time.UTC), Attempt: 1,
		}})
	}
	// Output:
	// {"id":"m0","seq":0,"key":"ann","topic":"","payload":"","created_at":"2026-05-04T03:02:00Z","attempt":1}
	// {"id":"m1","seq":1,"key":"bob","topic":"","payload":"","created_at":"2026-05-04T03:02:01Z","attempt":1}
	// {"id":"m2","seq":2,"key":"ann","topic":"","headers":{"penstock-previous":"m0"},"payload":"","created_at":"2026-05-04T03:02:02Z","attempt":1}
}
