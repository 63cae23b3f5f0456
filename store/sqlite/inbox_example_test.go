package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/sqlite"
)

// The second message of an account arrives first, and the first one twice.
func ExampleInbox_Process() {
	dir, err := os.MkdirTemp("", "penstock")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, file := context.Background(), filepath.Join(dir, "app.db")
	store, err := sqlite.Open(ctx, file, sqlite.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	if err := store.CreateInbox(ctx, "billing", 7*24*time.Hour); err != nil {
		log.Fatal(err)
	}
	db, err := sqlite.OpenDB(file)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()

	opened := penstock.Message{ID: "m1", Key: "account 7", Payload: []byte("opened")}
	credited := penstock.Message{ID: "m2", Key: "account 7", Payload: []byte("credited"), Headers: map[string]string{penstock.HeaderPrevious: "m1"}}
	for _, m := range []penstock.Message{credited, opened, opened} {
		err := store.Inbox("billing").Process(ctx, db, m, 30*time.Second, func(_ context.Context, _ *sql.Tx, r penstock.Released) error {
			fmt.Printf("%s: %s\n", r.Key, r.Payload) // and write through the transaction
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// account 7: opened
	// account 7: credited
}
