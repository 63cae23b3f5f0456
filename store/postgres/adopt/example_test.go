package adopt_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres/adopt"
)

// A table that exists already becomes a source for a relay.
func ExampleOpen() {
	ctx := context.Background()
	table, err := adopt.Open(ctx, adopt.Options{
		URL:          os.Getenv("DATABASE_URL"),
		Subscription: "billing",
		Config:       adopt.Config{Preset: "dotnet", Table: "public.outbox_messages"},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer table.Close()
	source, err := table.Subscribe(ctx, driver.Subscribe{Subscription: "billing", Holder: "example"})
	if err != nil {
		log.Fatal(err)
	}
	batch, err := source.Fetch(ctx, driver.Limit{Messages: 100, Bytes: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range batch.Messages {
		fmt.Println(m.Topic, m.Key)
	}
}
