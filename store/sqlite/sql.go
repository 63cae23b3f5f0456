package sqlite

import (
	"embed"
	"encoding/json"
	"strings"
)

// Statements that are more than a line. {table} stands for the quoted table of
// an outbox.
var (
	//go:embed sql/create_outbox.sql
	createOutboxSQL string

	//go:embed sql/fetchable.sql
	fetchableSQL string
	//go:embed sql/fetch.sql
	fetchSQL string
	//go:embed sql/behind.sql
	behindSQL string
	//go:embed sql/due_keys.sql
	dueKeysSQL string
	//go:embed sql/rest_of_key.sql
	restOfKeySQL string
	//go:embed sql/fetch_replay.sql
	fetchReplaySQL string
	//go:embed sql/count_replay.sql
	countReplaySQL string
	//go:embed sql/unparked.sql
	unparkedSQL string

	//go:embed sql/settle.sql
	settleSQL string
	//go:embed sql/park_keys.sql
	parkKeysSQL string
	//go:embed sql/park.sql
	parkSQL string
	//go:embed sql/dead_letter.sql
	deadLetterSQL string
	//go:embed sql/dead_letter_parked.sql
	deadLetterParkedSQL string
	//go:embed sql/refuse_parked.sql
	refuseParkedSQL string
	//go:embed sql/advance_keys.sql
	advanceKeysSQL string
	//go:embed sql/delay_keys.sql
	delayKeysSQL string
	//go:embed sql/end_keys.sql
	endKeysSQL string
	//go:embed sql/hold.sql
	holdSQL string
	//go:embed sql/hold_keys.sql
	holdKeysSQL string
	//go:embed sql/held_keys.sql
	heldKeysSQL string
	//go:embed sql/release.sql
	releaseSQL string
	//go:embed sql/retry_parked.sql
	retryParkedSQL string

	//go:embed sql/chosen.sql
	chosenSQL string
	//go:embed sql/dead_letters.sql
	deadLettersSQL string
	//go:embed sql/retry_dead_letters.sql
	retryDeadLettersSQL string
	//go:embed sql/retry.sql
	retrySQL string
	//go:embed sql/parked_keys.sql
	parkedKeysSQL string
	//go:embed sql/drop_subscription.sql
	dropSubscriptionSQL string

	//go:embed sql/settled.sql
	settledSQL string
	//go:embed sql/reclaim.sql
	reclaimSQL string
	//go:embed sql/status.sql
	statusSQL string

	//go:embed migrations/*.sql
	migrations embed.FS
)

// on puts the table of an outbox into a statement.
func on(table, statement string) string {
	return strings.ReplaceAll(statement, "{table}", table)
}

// array makes a parameter of many values: statements take it apart with
// json_each, so that one statement settles a whole batch.
func array[T any](values []T) string {
	b, _ := json.Marshal(values) // of numbers, strings and histories: cannot fail
	return string(b)
}
