// Package schema compares the tables of a database with those that this program creates.
package schema

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/penstock/penstock"
)

// Of is a schema in a database: its name there, the version of this program, and the command that migrates it.
type Of struct {
	Where   string
	Want    int64
	Oldest  int64  // from which Migrate can continue
	Migrate string // a command
	Fresh   string // how to begin again, if it cannot
}

// Drop is the advice of Fresh for a schema in a server.
const Drop = "drop the schema, with all that is in it, and migrate anew"

// Check returns nil for the version of this program, else a *penstock.SchemaError with the next step. Version 0 is none.
func (o Of) Check(have int64) error {
	err := &penstock.SchemaError{Where: o.Where, Have: have, Want: o.Want}
	switch {
	case have == o.Want:
		return nil
	case have > o.Want:
		return penstock.WithHint(err, "use a newer penstock: update this program, or the library in it")
	case have > 0 && have < o.Oldest:
		return penstock.WithHint(err, "it is from before the first release: %s, or bring it to version %d with the program that made it", o.Fresh, o.Oldest)
	}
	return o.Unmigrated(err)
}

// Unmigrated adds to an error how to migrate: the command, or the call of a program in Go.
func (o Of) Unmigrated(err error) error {
	return penstock.WithHint(err, "run: %s, or in Go call Migrate", o.Migrate)
}

// Broken is the error for tables of that version that lack something.
func (o Of) Broken(have int64, lacks string) error {
	return penstock.WithHint(&penstock.SchemaError{Where: o.Where, Have: have, Want: o.Want, Lacks: lacks},
		"part of it was dropped, or not restored: restore it from a backup, or %s", o.Fresh)
}

// Is reports whether err says that the tables do not fit this program.
func Is(err error) bool {
	_, is := errors.AsType[*penstock.SchemaError](err)
	return is
}

// Column is a column of a permanent table.
type Column struct{ Table, Name string }

var (
	comment   = regexp.MustCompile(`--[^\n]*`)
	statement = regexp.MustCompile(`(?m)^(create|alter|drop) table (?:if (?:not )?exists )?(?:\{schema\}\.)?(\w+)`)
	added     = regexp.MustCompile(`add column (\w+)`)
	dropped   = regexp.MustCompile(`drop column (\w+)`)
	renamed   = regexp.MustCompile(`rename column (\w+) to (\w+)`)
	column    = regexp.MustCompile("^\\s*`?(\\w+)`? ")
	clause    = regexp.MustCompile(`^\s*(primary key|unique|key \w+ \(|constraint|check|foreign key|exclude)`)
)

// Columns are those of the tables that the statements create and then alter or drop, by table. Each statement begins its line, as all of
// ours do.
func Columns(text string) (all []Column) {
	text = comment.ReplaceAllString(text, "")
	for _, at := range statement.FindAllStringSubmatchIndex(text, -1) {
		verb, table := text[at[2]:at[3]], text[at[4]:at[5]]
		body, _, _ := strings.Cut(text[at[1]:], ";")
		switch verb {
		case "drop":
			all = slices.DeleteFunc(all, func(a Column) bool { return a.Table == table })
			continue
		case "create":
			for _, part := range parts(body) {
				if c := column.FindStringSubmatch(part + " "); c != nil && !clause.MatchString(part) {
					all = append(all, Column{table, c[1]})
				}
			}
			continue
		}
		for _, c := range added.FindAllStringSubmatch(body, -1) {
			all = append(all, Column{table, c[1]})
		}
		for _, c := range dropped.FindAllStringSubmatch(body, -1) {
			all = slices.DeleteFunc(all, func(a Column) bool { return a == Column{table, c[1]} })
		}
		for _, c := range renamed.FindAllStringSubmatch(body, -1) {
			all[slices.Index(all, Column{table, c[1]})].Name = c[2]
		}
	}
	slices.SortStableFunc(all, func(a, b Column) int { return strings.Compare(a.Table, b.Table) })
	return all
}

// parts of the first parenthesis, split at commas outside of inner ones.
func parts(body string) (all []string) {
	depth, from := 0, 0
	for i, r := range body {
		switch {
		case r == '(':
			if depth++; depth == 1 {
				from = i + 1
			}
		case r == ')':
			if depth--; depth == 0 {
				return append(all, body[from:i])
			}
		case r == ',' && depth == 1:
			all, from = append(all, body[from:i]), i+1
		}
	}
	return all
}

// Probe is a statement of MySQL or SQLite that finds no row, and fails if a table or a column is missing.
func Probe(all []Column, prefix string) string {
	var b strings.Builder
	for i, c := range all {
		switch {
		case i > 0 && all[i-1].Table == c.Table:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(") union all ")
			fallthrough
		default:
			b.WriteString("select 1 from " + prefix + "`" + c.Table + "` where 1 = 0 and (")
		}
		b.WriteString("`" + c.Name + "` is null")
	}
	return b.String() + ")"
}

// Lacking names a missing table, or a single missing column. It returns "" if nothing is missing.
func Lacking(all []Column, there func(Column) bool) string {
	var lacks []string
	for len(all) > 0 {
		table, n := all[0].Table, 1
		for n < len(all) && all[n].Table == table {
			n++
		}
		var missing []string
		for _, c := range all[:n] {
			if !there(c) {
				missing = append(missing, "the column "+c.Name+" of "+table)
			}
		}
		if len(missing) == n {
			missing = []string{"the table " + table}
		}
		lacks, all = append(lacks, missing...), all[n:]
	}
	if more := len(lacks) - 3; more > 0 {
		lacks = append(lacks[:3], fmt.Sprintf("%d others", more))
	}
	return strings.Join(lacks, ", ")
}
