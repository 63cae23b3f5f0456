package postgres

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pg"
)

// MigrationSQL returns the statements with which Migrate updates a schema whose tables are of version from, for tools that
// run SQL. 0 is a schema that does not exist. An empty schema means DefaultSchema.
func MigrationSQL(schema string, from int64) (string, error) {
	if schema == "" {
		schema = DefaultSchema
	}
	if !leadsOnFrom(from) {
		return "", &penstock.FieldError{Field: "from", Problem: fmt.Sprintf("%d is not a version that this program can update", from),
			Hint: fmt.Sprintf("use the one that penstock migrate --check prints: 0 for none, or one from %d to %d", firstVersion, newestVersion())}
	}
	what := fmt.Sprintf("version %d", newestVersion())
	if from > 0 {
		what = fmt.Sprintf("from version %d to %d", from, newestVersion())
	}
	var all strings.Builder
	for _, c := range changes(from, "") {
		fmt.Fprintf(&all, "    -- %s\n    execute %s;\n", c.what, dollarQuoted("change", "\n"+c.text))
	}
	migration := pgx.Identifier{schema, "_migration"}.Sanitize()
	text := strings.NewReplacer(
		"{title}", strconv.QuoteToASCII(schema), // on one line, whatever the name
		"{what}", what,
		"{oldest_server}", strconv.Itoa(oldestServer),
		"{lock}", strconv.Itoa(migrationLock),
		"{schema_name}", pg.Literal(schema),
		"{schema}", pgx.Identifier{schema}.Sanitize(),
		"{migration_name}", pg.Literal(migration),
		"{migration}", strings.ReplaceAll(migration, "'", "''"),
		"{from}", strconv.FormatInt(from, 10),
		"{changes}", all.String(),
	).Replace(read("schema/script.sql"))
	head, body, _ := strings.Cut(text, "{outer}")
	body, tail, _ := strings.Cut(body, "{outer}")
	return head + dollarQuoted("migrate", body) + tail, nil
}

// dollarQuoted is a text between dollars, with a tag that is not in it.
func dollarQuoted(tag, text string) string {
	for strings.Contains(text, "$"+tag+"$") {
		tag += "_"
	}
	return "$" + tag + "$" + text + "$" + tag + "$"
}
