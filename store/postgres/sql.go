package postgres

import (
	"embed"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var ownName = regexp.MustCompile(`'\{schema\}\.(\w+)'`)

// statement loads sql/NAME.sql and puts in the quoted names; outbox may be a queue.
func statement(name, schema, outbox string) string {
	text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // embedded: missing only if the program was built wrong
	}
	own := func(match string) string { // a name inside a literal, quoted for both
		return literal(pgx.Identifier{schema, ownName.FindStringSubmatch(match)[1]}.Sanitize())
	}
	return strings.NewReplacer(
		"{schema}", pgx.Identifier{schema}.Sanitize(),
		"{outbox}", pgx.Identifier{schema, outbox}.Sanitize(),
		"{queue}", pgx.Identifier{schema, outbox}.Sanitize(),
		"{outbox_name}", literal(pgx.Identifier{schema, outbox}.Sanitize()),
		"{seq}", literal(pgx.Identifier{schema, "_" + outbox + ".seq"}.Sanitize()),
	).Replace(ownName.ReplaceAllStringFunc(stripComments(string(text)), own))
}

// stripComments drops comment lines, so that the server does not parse them with
// every statement that is not prepared.
func stripComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "--") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
