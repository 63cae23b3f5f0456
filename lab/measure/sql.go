package measure

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// statements are those of one file, by their names.
type statements map[string]string

// read is readSQL of the file in the database's dialect.
func (d Setup) read(file string, words map[string]string) statements {
	if d.mysql() != nil {
		file = "mysql_" + file
	}
	return readSQL(file, words)
}

// readSQL reads the statements of a file, each behind a line "-- name: X". words
// replace {word} in them. A file that is missing or has no names was built wrong.
func readSQL(file string, words map[string]string) statements {
	text, err := sqlFiles.ReadFile("sql/" + file + ".sql")
	if err != nil {
		panic(err)
	}
	replace := make([]string, 0, 2*len(words))
	for word, by := range words {
		replace = append(replace, "{"+word+"}", by)
	}
	replacer := strings.NewReplacer(replace...)
	out := statements{}
	for i, part := range strings.Split(string(text), "-- name: ") {
		if i == 0 {
			continue // the file's own comment
		}
		name, sql, _ := strings.Cut(part, "\n")
		lines := strings.Split(sql, "\n")
		for len(lines) > 0 && (lines[len(lines)-1] == "" || strings.HasPrefix(lines[len(lines)-1], "--")) {
			lines = lines[:len(lines)-1] // the comment of the next one
		}
		sql = replacer.Replace(strings.TrimSuffix(strings.Join(lines, "\n"), ";"))
		if at := strings.IndexByte(sql, '{'); at >= 0 {
			panic(fmt.Sprintf("bench: %s of %s has a word that nothing replaces: %s", name, file, sql[at:]))
		}
		out[name] = sql
	}
	return out
}
