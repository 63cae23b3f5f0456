package docstest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	inlineCode = regexp.MustCompile("`+[^`]*`+")
	link       = regexp.MustCompile(`\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)`)
	anchor     = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	notInSlug  = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
	markup     = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// Every relative link leads to a file, and its anchor to a heading, as GitHub and the site make anchors of them.
func TestLinks(t *testing.T) {
	all := pages(t)
	anchors := map[string]map[string]bool{}
	for _, p := range all {
		anchors[p.path] = anchorsOf(p)
	}
	var found int
	for _, p := range all {
		for _, l := range p.lines {
			for _, m := range link.FindAllStringSubmatch(inlineCode.ReplaceAllString(l.text, "`"), -1) {
				if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
					continue
				}
				found++
				target, fragment, hasFragment := strings.Cut(m[1], "#")
				file := p.path
				if target != "" {
					file = path.Join(path.Dir(p.path), target)
				}
				if _, err := os.Stat(filepath.Join(root, file)); err != nil || strings.HasPrefix(file, "..") {
					t.Errorf("%s:%d: there is no %s", p.path, l.number, m[1])
					continue
				}
				if known, isPage := anchors[file]; hasFragment && isPage && !known[fragment] {
					t.Errorf("%s:%d: %s has no heading #%s", p.path, l.number, file, fragment)
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d links found", found)
	}
}

func anchorsOf(p page) map[string]bool {
	known := map[string]bool{}
	for _, l := range p.lines {
		for _, m := range anchor.FindAllStringSubmatch(l.text, -1) {
			known[m[1]] = true
		}
		text := strings.TrimLeft(l.text, "#")
		if depth := len(l.text) - len(text); depth == 0 || depth > 6 || !strings.HasPrefix(text, " ") {
			continue
		}
		text = strings.ReplaceAll(markup.ReplaceAllString(strings.TrimSpace(text), "$1"), "`", "")
		slug := strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
		name := slug
		for i := 1; known[name]; i++ {
			name = fmt.Sprintf("%s-%d", slug, i)
		}
		known[name] = true
	}
	return known
}
