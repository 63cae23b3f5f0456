package check_test

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/store/postgres/adopt"
	"github.com/penstock/penstock/store/postgres/adopt/check"
)

// What makes the outbox table of a .NET service slow or unsafe, and the statements that mend it.
func ExampleRun() {
	ctx := context.Background()
	db, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close(ctx)
	report, err := check.Run(ctx, db, adopt.Config{Preset: "dotnet", Table: "public.outbox_messages"}, check.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := report.WriteText(os.Stdout); err != nil {
		log.Fatal(err)
	}
}
