package postgres

import (
	"embed"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/pg"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var ownName = regexp.MustCompile(`'\{schema\}\.(\w+)'`)

// statement loads sql/NAME.sql and puts in the quoted names; outbox may be a queue.
func statement(name, schema, outbox string) string {
	own := func(match string) string { // a name inside a literal, quoted for both
		return pg.Literal(pgx.Identifier{schema, ownName.FindStringSubmatch(match)[1]}.Sanitize())
	}
	return strings.NewReplacer(
		"{schema}", pgx.Identifier{schema}.Sanitize(),
		"{outbox}", pgx.Identifier{schema, outbox}.Sanitize(),
		"{queue}", pgx.Identifier{schema, outbox}.Sanitize(),
		"{outbox_name}", pg.Literal(pgx.Identifier{schema, outbox}.Sanitize()),
		"{seq}", pg.Literal(pgx.Identifier{schema, "_" + outbox + ".seq"}.Sanitize()),
	).Replace(ownName.ReplaceAllStringFunc(pg.Statement(sqlFiles, name), own))
}
