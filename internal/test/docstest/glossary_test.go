package docstest

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

const glossary = "docs/concepts/glossary.md"

// replaced are words of the code, and the term of the glossary that pages for users have instead.
var replaced = []struct{ word, term string }{
	{`predecessors?`, "previous id"},
	{`(pinned snapshot|vacuum horizon)s?`, "vacuum pin"},
	{`verdicts?`, "settle"},
	{`lanes?`, "key"},
	{`park(ing)? points?`, "parked"},
	{`stands? by`, "standby"},
	{`hurr(y|ies|ied)`, "drain"},
	{`walks? over`, "sweep"},
	{`undeliverables?`, "dead letter"},
}

// Each term of the glossary is used on a page for users, in a sentence or a table, and no such page has a word that a term replaces.
func TestGlossary(t *testing.T) {
	var terms []string
	var others []page
	for _, p := range pages(t) {
		switch {
		case p.path == glossary:
			terms = termsOf(p)
		case forUsers(p.path):
			others = append(others, p)
		}
	}
	if len(terms) < 40 || len(others) < 50 {
		t.Fatalf("%d terms, %d pages", len(terms), len(others))
	}
	for _, term := range terms {
		// Markdown has a term in any form: keys, claimed, snoozes.
		pattern := regexp.MustCompile(`(?i)\b` + regexp.QuoteMeta(strings.TrimSuffix(term, "e")) + `(e|s|es|d|ed|ing)?\b`)
		if !slices.ContainsFunc(others, func(p page) bool { return len(uses(p, pattern)) > 0 }) {
			t.Errorf("the glossary explains %q, which no other page uses", term)
		}
	}
	for _, r := range replaced {
		if !slices.Contains(terms, r.term) {
			t.Errorf("%q gives way to %q, which the glossary does not have", r.word, r.term)
		}
		pattern := regexp.MustCompile(`(?i)\b` + r.word + `\b`)
		for _, p := range others {
			for _, l := range uses(p, pattern) {
				t.Errorf("%s:%d: write %q, not %q: %s", p.path, l.number, r.term, pattern.FindString(l.text), l.text)
			}
		}
	}
}

// termsOf are those of its table; a row can have two.
func termsOf(p page) (terms []string) {
	for _, l := range p.lines {
		cells := strings.Split(l.text, "|")
		if len(cells) < 3 || ruled.MatchString(l.text) || strings.TrimSpace(cells[1]) == "Term" {
			continue
		}
		terms = append(terms, strings.Split(strings.TrimSpace(cells[1]), ", ")...)
	}
	return terms
}

// forUsers reports pages that do not describe the inside: schema.md lists private tables. Comparisons have the words of others.
func forUsers(path string) bool {
	for _, folder := range []string{"docs/start/", "docs/guides/", "docs/concepts/", "docs/operations/", "docs/reference/", "docs/migrate/"} {
		if strings.HasPrefix(path, folder) {
			return !slices.Contains([]string{"docs/reference/schema.md", "docs/reference/performance.md"}, path)
		}
	}
	return path == "README.md" || path == "docs/README.md" || strings.HasPrefix(path, "clients/") && strings.HasSuffix(path, "/README.md")
}

// uses are the lines that match outside of code.
func uses(p page, pattern *regexp.Regexp) (found []line) {
	for _, l := range p.lines {
		if pattern.MatchString(inlineCode.ReplaceAllString(l.text, "`")) {
			found = append(found, l)
		}
	}
	return found
}
