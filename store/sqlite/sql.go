package sqlite

import (
	"embed"
	"strings"
)

var (
	//go:embed sql/*.sql
	files embed.FS
	//go:embed migrations/*.sql
	migrations embed.FS
)

// texts are the statements by name, as they are in sql/. {table} stands for the quoted table of an outbox or of a queue.
var texts = func() map[string]string {
	all := map[string]string{}
	entries, _ := files.ReadDir("sql")
	for _, e := range entries {
		text, _ := files.ReadFile("sql/" + e.Name())
		all[strings.TrimSuffix(e.Name(), ".sql")] = string(text)
	}
	parts := strings.NewReplacer("{chosen_jobs}", strings.TrimSpace(all["chosen_jobs"]),
		"{chosen}", strings.TrimSpace(all["chosen"]), "{needed}", strings.TrimSpace(all["needed"]),
		"{created}", "min(max(t.created_at, -9000000000000000), 9000000000000000) * 1000",
		"{message}", "t.created_at, t.seq, coalesce(t.id, ''), coalesce(t.key, ''), t.topic, coalesce(t.headers, ''), t.payload",
		"{tried}", "coalesce(case when json_valid(h.history) then min(max(json_extract(h.history, '$.attempts'), 0), 1000000000) else h.history is not null end, 0)",
		"{tried_since}", "case when json_valid(h.history) then json_extract(h.history, '$.since') end",
		"{tried_failures}", "case when json_valid(h.history) then json_extract(h.history, '$.failures') else h.history end")
	for name, text := range all {
		all[name] = spelled.Replace(parts.Replace(parts.Replace(text))) // a part may have others
	}
	return all
}()

// statement is one of sql/.
func statement(name string) string {
	text, ok := texts[name]
	if !ok {
		panic("there is no sql/" + name + ".sql") // TestStatementsAreThere finds it before
	}
	return text
}

// on puts the table of an outbox into a statement.
func on(table, statement string) string {
	return strings.ReplaceAll(statement, "{table}", table)
}
