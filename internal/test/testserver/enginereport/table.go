package main

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// The lines around the rows in the page, and the head of the table.
const (
	tableBegins = "<!-- make test-engines writes this table -->\n"
	tableHead   = "| engine | version | passed | skipped, and why | failed | minutes | commit |\n| --- | --- | --- | --- | --- | --- | --- |\n"
	tableEnds   = "<!-- end -->\n"
)

// addTo writes the row of the report's engine into the page.
func (r *report) addTo(page, commit string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), tableBegins)
	table, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		return fmt.Errorf("%s has no table of engines", page)
	}
	row := r.row(commit)
	engine := row[:strings.Index(row[1:], "|")+1]
	rows := slices.DeleteFunc(strings.SplitAfter(strings.TrimPrefix(table, tableHead), "\n"), func(other string) bool {
		return other == "" || strings.HasPrefix(other, engine)
	})
	rows = append(rows, row)
	slices.Sort(rows)
	return os.WriteFile(page, []byte(before+tableBegins+tableHead+strings.Join(rows, "")+tableEnds+after), 0o644)
}

// row is the report as a line of the table. The engine is what stands before the last space of the server.
func (r *report) row(commit string) string {
	at := max(0, strings.LastIndex(r.Server, " "))
	skipped := fmt.Sprint(len(r.Skipped))
	if len(r.Skipped) > 0 {
		skipped += ": " + r.reasons()
	}
	return fmt.Sprintf("| %s | %s | %d | %s | %d | %.1f | %s |\n", r.Server[:at], strings.TrimSpace(r.Server[at:]), len(r.Passed), skipped, r.failures()+len(r.Broken), r.Seconds/60, commit)
}

// failures counts those that failed themselves, not by a part of theirs or by a test of the package.
func (r *report) failures() (n int) {
	for _, f := range r.Failed {
		if !slices.ContainsFunc(r.Failed, func(o result) bool {
			return strings.HasPrefix(o.Test, f.Test+"/") || strings.HasSuffix(f.Test, " ") && o.Test != f.Test && strings.HasPrefix(o.Test, f.Test)
		}) {
			n++
		}
	}
	return n
}

var place = regexp.MustCompile(`^\s*\S+\.go:\d+: `)

// reasons explains why tests were skipped, the most frequent reason first.
func (r *report) reasons() string {
	times := map[string]int{}
	for _, test := range r.Skipped {
		reason := "without a reason"
		for _, line := range test.Output {
			if at := place.FindString(line); at != "" {
				reason = strings.ReplaceAll(line[len(at):], "|", "/")
				reason, _, _ = strings.Cut(reason, ";") // what to do about it
				reason, _, _ = strings.Cut(reason, ": ")
			}
		}
		times[reason]++
	}
	var all []string
	for reason := range times {
		all = append(all, reason)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(times[b]-times[a], strings.Compare(a, b)) })
	for i, reason := range all {
		all[i] = fmt.Sprintf("%d %s", times[reason], reason)
	}
	return strings.Join(all, ", ")
}
