package sqlite

import (
	"embed"
	"strings"
)

// Statements that are more than a line. {table} stands for the quoted table of
// an outbox.
var (
	//go:embed sql/create_outbox.sql
	createOutboxSQL string
	//go:embed sql/fetch.sql
	fetchSQL string
	//go:embed sql/fetch_retries.sql
	fetchRetriesSQL string
	//go:embed sql/bury.sql
	burySQL string
	//go:embed sql/bury_again.sql
	buryAgainSQL string
	//go:embed sql/settle.sql
	settleSQL string
	//go:embed sql/reclaim.sql
	reclaimSQL string
	//go:embed sql/status.sql
	statusSQL string
	//go:embed sql/dead_letters.sql
	deadLettersSQL string

	//go:embed migrations/*.sql
	migrations embed.FS
)

// on puts the table of an outbox into a statement.
func on(table, statement string) string {
	return strings.ReplaceAll(statement, "{table}", table)
}
