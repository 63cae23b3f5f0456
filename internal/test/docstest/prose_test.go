package docstest

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "lower the numbers in testdata/prose.txt")

// habit is a pattern of writing over which readers stumble.
type habit struct {
	name    string
	pattern *regexp.Regexp
	instead string
	fine    *regexp.Regexp // matches that are plain English
}

// mostWords is how long a sentence may be.
const mostWords = 30

var habits = []habit{
	{"whoever", regexp.MustCompile(`(?i)\b(whoever|whomever|whom)\b`), "name who does it", nil},
	{"nobody", regexp.MustCompile(`(?i)\b(nobody|somebody|everybody)\b`), "no relay, an operator, every user", nil},
	{"beside", regexp.MustCompile(`(?i)\bbeside\b`), "next to, with, compared with", nil},
	{"in vain", regexp.MustCompile(`(?i)\bin vain\b`), "without success, never arrived", nil},
	{"mend", regexp.MustCompile(`(?i)\bmend(s|ed|ing)?\b`), "fix, correct", nil},
	{"of its own", regexp.MustCompile(`(?i)\bof (its|their|his|your|our) own\b`), "its own, separate", nil},
	{"is no X", regexp.MustCompile(`(?i)(\w+ )?\b(is|are|was|were) no \w+`), "is not a, has no", regexp.MustCompile(`(?i)^there |no (longer|more|less|other|different|better|worse|later|earlier|faster|slower)$`)},
	{"What as a noun", regexp.MustCompile(`^What (is|was|are|has|had|comes|came|waits|all|they|it|a|the|needs|follows|remains|somebody|an)\b[^?]*$`), "a noun: messages, rows, the result", nil},
	{"what is settled", regexp.MustCompile(`(?i)\bwhat (is|was|has been|had been|were) (settled|delivered|parked|done|sent|taken|kept|there|left|given|published|written|confirmed|under)\b`), "a noun: delivered messages, kept rows", nil},
	{"trailing too", regexp.MustCompile(`, too\b( \w+)?`), "also", regexp.MustCompile(`too (large|long)$`)},
	{"for good", regexp.MustCompile(`(?i)\bfor good\b`), "permanently", nil},
	{"Who as a subject", regexp.MustCompile(`^Who (is|has|does|gets|wants|can|takes|finds|not)\b[^?]*$`), "name who does it", nil},
	{"wants", regexp.MustCompile(`(?i)\w[,;:]? wants\b`), "needs, requires", nil},
	{"goes on", regexp.MustCompile(`(?i)\b(go|goes|went|gone) on\b`), "continue", nil},
	{"so many", regexp.MustCompile(`(?i)\b(so many|so long|so much)\b( \w+)?`), "at most N, this many", regexp.MustCompile(`(?i) (as|that)$`)},
	{"is to be", regexp.MustCompile(`(?i)\b(is|are) to be\b`), "must be, should be", nil},
	{"say as an aside", regexp.MustCompile(`(?i), say[,.;:)]`), "for example", nil},
	{"in the place of", regexp.MustCompile(`(?i)\bin the place of\b`), "instead of", nil},
	{"as ever", regexp.MustCompile(`(?i)\bas ever\b`), "as usual", nil},
	{"says whether", regexp.MustCompile(`(?i)\b(says?|tells?) whether\b`), "returns whether, reports whether, shows whether", nil},
	{"is said", regexp.MustCompile(`(?i)\bis said\b`), "see, is described", nil},
}

// vague words are allowed in comments, but in all of them together only a quarter as often as an editor counted: 2,930 and 299 times.
var vague = []struct {
	pattern *regexp.Regexp
	most    int
	instead string
}{
	{regexp.MustCompile(`(?i)\bwhat\b`), 692, "a noun: the messages, the result, the next step"},
	{regexp.MustCompile(`(?i)\bby (itself|themselves)\b`), 12, "alone, again, directly, or nothing"},
	{regexp.MustCompile(`(?i)\b(tell|tells|told|telling)\b`), 49, "say, show, return, report"},
}

// The prose has no more of these habits, and no more sentences that are too long, than testdata/prose.txt allows: a file that is not in it,
// none. Help texts are read on the pages of docs/reference/commands, and comments that go doc shows by package. In SQL and in Go every comment is
// read. Errors, hints, findings and logs are strings in Go, which are read for habits alone. -update lowers the numbers, and raises none.
func TestProse(t *testing.T) {
	found := map[string][]string{}
	for _, p := range pages(t) {
		for _, s := range sentences(p.lines) {
			for _, problem := range problems(s.text) {
				found[p.path] = append(found[p.path], fmt.Sprintf("%s:%d: %s", p.path, s.number, problem))
			}
		}
	}
	for _, folder := range imported(t) {
		for source, all := range comments(t, folder) {
			for _, s := range all {
				for _, problem := range problems(s.text) {
					found[folder] = append(found[folder], source+": "+problem)
				}
			}
		}
	}
	words := map[string]int{}
	for name, all := range inside(t) {
		for _, s := range all {
			for _, w := range vague {
				words[w.instead] += len(w.pattern.FindAllString(s.text, -1))
			}
			for _, problem := range problems(s.text) {
				found[name] = append(found[name], fmt.Sprintf("%s:%d: %s", name, s.number, problem))
			}
		}
	}
	for _, w := range vague {
		if n := words[w.instead]; n > w.most {
			t.Errorf("comments have %s %d times, at most %d are allowed: write %s", w.pattern, n, w.most, w.instead)
		}
	}
	for name, all := range screens(t) {
		for _, s := range all {
			for _, problem := range problems(s.text) {
				found[name] = append(found[name], fmt.Sprintf("%s:%d: %s", name, s.number, problem))
			}
		}
	}
	for name, all := range texts(t) {
		for _, s := range all {
			for _, problem := range habitsIn(s.text) {
				found[name] = append(found[name], fmt.Sprintf("%s:%d: %s", name, s.number, problem))
			}
		}
	}
	const list = "testdata/prose.txt"
	allowed := allowance(t, list)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if n := len(found[name]); n > allowed[name] {
			t.Errorf("%s has %d, at most %d are allowed:\n%s", name, n, allowed[name], strings.Join(found[name], "\n"))
		}
	}
	if *update && !t.Failed() {
		var out strings.Builder
		for _, name := range slices.Sorted(maps.Keys(allowed)) {
			if n := len(found[name]); n > 0 {
				fmt.Fprintf(&out, "%d %s\n", n, name)
			}
		}
		if err := os.WriteFile(list, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func problems(sentence string) (all []string) {
	if n := len(strings.Fields(sentence)); n > mostWords {
		all = append(all, fmt.Sprintf("%d words, want %d at most: %s", n, mostWords, sentence))
	}
	return append(all, habitsIn(sentence)...)
}

func habitsIn(sentence string) (all []string) {
	for _, h := range habits {
		for _, m := range h.pattern.FindAllString(sentence, -1) {
			if h.fine == nil || !h.fine.MatchString(m) {
				all = append(all, fmt.Sprintf("%q (%s; write: %s): %s", m, h.name, h.instead, sentence))
			}
		}
	}
	return all
}

var (
	inlineMarkup = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	inlineHTML   = regexp.MustCompile(`<[^>]+>`)
	item         = regexp.MustCompile(`^\s*([-*+]|\d+\.)\s+(\[[ x]\]\s+)?`)
	sentenceEnd  = regexp.MustCompile(`[.!?…]["')*]*(\s+|$)`)
	linkTarget   = regexp.MustCompile(`^\[[^\]]+\]: `)
	ruled        = regexp.MustCompile(`^[|:\- ]+$`)
)

// The rows between these comments are a program's, of texts in its output.
const (
	writtenBegins = "<!-- make test-engines writes this table -->"
	writtenEnds   = "<!-- end -->"
)

// sentences of paragraphs, list items and the cells of tables; headings are none.
func sentences(lines []line) (all []line) {
	var paragraph []string
	begin, last, written := 0, 0, false
	flush := func() {
		all = append(all, split(begin, strings.Join(paragraph, " "))...)
		paragraph = nil
	}
	for _, l := range lines {
		text := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(l.text), ">"))
		if l.number != last+1 {
			flush() // a block of code stood between
		}
		last = l.number
		written = text == writtenBegins || written && text != writtenEnds
		switch {
		case written:
			flush()
		case text == "" || strings.HasPrefix(text, "#") || linkTarget.MatchString(text):
			flush()
		case strings.HasPrefix(text, "|"):
			flush()
			if ruled.MatchString(text) {
				continue
			}
			for cell := range strings.SplitSeq(strings.ReplaceAll(inlineCode.ReplaceAllString(text, "CODE"), `\|`, "/"), "|") {
				all = append(all, split(l.number, strings.TrimSpace(cell))...)
			}
		case item.MatchString(l.text):
			flush()
			begin = l.number
			paragraph = append(paragraph, item.ReplaceAllString(l.text, ""))
		default:
			if paragraph == nil {
				begin = l.number
			}
			paragraph = append(paragraph, text)
		}
	}
	flush()
	return all
}

func split(number int, text string) (all []line) {
	text = inlineCode.ReplaceAllString(text, "CODE")
	text = inlineHTML.ReplaceAllString(inlineMarkup.ReplaceAllString(text, "$1"), "")
	text = strings.ReplaceAll(text, "*", "")
	for text != "" {
		end := len(text)
		if at := sentenceEnd.FindStringIndex(text); at != nil {
			end = at[1]
		}
		if s := strings.TrimSpace(text[:end]); s != "" {
			all = append(all, line{number: number, text: s})
		}
		text = text[end:]
	}
	return all
}

var (
	templateAction = regexp.MustCompile(`\{\{[^}]*\}\}`)
	blockTag       = regexp.MustCompile(`\{\{else[^}]*\}\}|</?(p|h\d|li|ol|dl|dt|dd|div|th|td|tr|label|button|summary|section|form|option|title)\b[^>]*>`)
)

// screens are the sentences of the console's pages, by file.
func screens(t *testing.T) map[string][]line {
	t.Helper()
	all := map[string][]line{}
	files, err := filepath.Glob(filepath.Join(root, "cmd/penstock/internal/console/pages/*.html"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d pages of the console: %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, _ := filepath.Rel(root, file)
		for i, row := range strings.Split(string(text), "\n") {
			for _, part := range blockTag.Split(row, -1) {
				part = templateAction.ReplaceAllString(part, "")
				all[filepath.ToSlash(name)] = append(all[filepath.ToSlash(name)], split(i+1, part)...)
			}
		}
	}
	return all
}

// texts are the strings of the library and the program that have several words: errors, hints, findings, logs and help.
func texts(t *testing.T) map[string][]line {
	t.Helper()
	all := map[string][]line{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		if d.IsDir() && path != root && (skipped(d.Name()) || slices.Contains([]string{"clients", "examples", "lab", "internal/test"}, name)) {
			return filepath.SkipDir
		}
		if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, is := n.(*ast.BasicLit); is && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil && strings.Contains(text, " ") {
					all[name] = append(all[name], split(set.Position(literal.Pos()).Line, text)...)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 300 {
		t.Fatalf("only %d files have texts", len(all))
	}
	return all
}

// imported are the packages that programs of others import.
func imported(t *testing.T) (folders []string) {
	t.Helper()
	folders = []string{"."}
	for _, pattern := range []string{"admin", "driver", "relay", "work", "writer", "metrics", "trace", "trace/*", "store/*", "sink/*", "penstocktest"} {
		matches, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range matches {
			if sources, _ := filepath.Glob(filepath.Join(m, "*.go")); len(sources) > 0 {
				name, _ := filepath.Rel(root, m)
				folders = append(folders, filepath.ToSlash(name))
			}
		}
	}
	return folders
}

// comments are the sentences of the comments that go doc shows, by the file they are in.
func comments(t *testing.T, folder string) map[string][]line {
	t.Helper()
	all := map[string][]line{}
	sources, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range documented(file) {
			all[source] = append(all[source], goSentences(0, c)...)
		}
	}
	return all
}
