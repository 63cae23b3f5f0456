package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
)

const repository = "../.."

// Each text of the program, its libraries and its clients that names a verb can be copied: the verb, its flags and the number of its arguments are right.
// A placeholder, NAME or %s, counts as an argument.
func TestNextStepsAreCommands(t *testing.T) {
	found := 0
	walk := func(folder string, of func(path string) []said, suffixes ...string) {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && slices.Contains([]string{".git", "node_modules", "testdata", "test", "tests", "examples", "lab"}, entry.Name()):
				return filepath.SkipDir
			case entry.IsDir() || strings.HasSuffix(path, "_test.go") || !slices.Contains(suffixes, filepath.Ext(path)):
				return nil
			}
			for _, s := range of(path) {
				if slices.ContainsFunc(notSteps, func(other string) bool { return s.text == other || strings.HasSuffix(s.text, other+";") }) {
					continue
				}
				for _, django := range ofDjango.FindAllStringSubmatch(s.text, -1) {
					if _, err := os.Stat(filepath.Join(repository, "clients/python/src/penstock/django/management/commands", django[1]+".py")); err != nil {
						t.Errorf("%s: %v", s.at, err)
					}
				}
				n, wrong := commandsOf(s.text)
				found += n
				for _, w := range wrong {
					t.Errorf("%s: %s", s.at, w)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	walk(repository, func(path string) []said { return goTexts(t, path) }, ".go")
	walk(filepath.Join(repository, "clients"), lines, ".py", ".ts", ".java")
	walk(filepath.Join(repository, "store/postgres/schema"), lines, ".sql")
	if found < 100 {
		t.Errorf("it has found %d commands only", found)
	}
}

// said is a text and its place.
type said struct{ at, text string }

// goTexts are the texts that a Go file composes, with X for unknown parts, except for help, which other tests check.
func goTexts(t *testing.T, path string) (all []said) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			key, _ := n.Key.(*ast.Ident)
			return key == nil || !slices.Contains([]string{"Long", "Example", "Use", "Short"}, key.Name)
		case *ast.BinaryExpr, *ast.BasicLit:
			if text, ok := textOf(n.(ast.Expr)); ok {
				if !isHelp(text) {
					all = append(all, said{files.Position(n.Pos()).String(), text})
				}
				return false
			}
		}
		return true
	})
	return all
}

// isHelp: it has several lines, and is not a next step below output.
func isHelp(text string) bool {
	return strings.Contains(strings.TrimSpace(text), "\n") && !strings.HasPrefix(text, "\nNext: ")
}

var verbOfFormat, number = regexp.MustCompile(`%(\[\d\])?[sdqvw]`), regexp.MustCompile(`%(\[\d\])?d`)

// textOf is a string, or the concatenation of several; false if there is none in it.
func textOf(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return verbOfFormat.ReplaceAllString(number.ReplaceAllString(text, "1"), "X"), err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, some := textOf(e.X)
		right, more := textOf(e.Y)
		return left + right, e.Op == token.ADD && (some || more)
	}
	return "X", false
}

var template = regexp.MustCompile(`\$?\{[^}]*\}|' *(\|\||,) *(?:[a-z_.]+)`) // {name} of Python, ${name} of TypeScript, ' || name of SQL

var added = regexp.MustCompile(` " \+ \w[\w.]*(\(\w*\))?`) // an argument in Java, behind a space

// lines are the lines of another language, whose texts have no line breaks.
func lines(path string) (all []said) {
	text, _ := os.ReadFile(path)
	for i, line := range strings.Split(string(text), "\n") {
		if trimmed := strings.TrimSpace(line); !strings.HasPrefix(trimmed, "--") && !strings.HasPrefix(trimmed, "#") && !strings.HasPrefix(trimmed, "/") && !strings.HasPrefix(trimmed, "*") && !strings.HasPrefix(trimmed, `"""`) {
			all = append(all, said{fmt.Sprintf("%s:%d", path, i+1), template.ReplaceAllString(added.ReplaceAllString(line, " 1X"), "1X")})
		}
	}
	return all
}

var (
	named    = regexp.MustCompile(`\bpenstock ([a-z].*)`)
	required = regexp.MustCompile(`--[a-z-]+`)
	ofDjango = regexp.MustCompile(`\bmanage\.py (penstock\w+)`)
	optional = regexp.MustCompile(`\[[^\]]*\]`)
	standsIn = regexp.MustCompile(`^'?[A-Z][A-Z…|]*'?$|X|^\d+$|^-$`)

	// notSteps are texts that resemble a command: a title, and an SQL statement that ends in a number.
	notSteps = []string{"penstock explain", "--from 1X"}
)

// commandsOf counts the commands in a text, and reports the faults of each.
func commandsOf(text string) (n int, wrong []string) {
	for line := range strings.Lines(text) {
		for line != "" {
			at := named.FindStringSubmatchIndex(line)
			if at == nil {
				break
			}
			line = line[at[2]:]
			command, is := commandAt(line)
			if !is {
				continue
			}
			n++
			if err := misused(command); err != nil {
				wrong = append(wrong, fmt.Sprintf("penstock %s: %v, in %q", strings.Join(command, " "), err, text))
			}
		}
	}
	return n, wrong
}

func tree() *cobra.Command {
	return rootCommand(cli.New(strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}))
}

// commandAt is the part of a text that a user would copy, from a verb to the end of the clause or to the next words.
func commandAt(text string) (command []string, is bool) {
	cmd, value := tree(), false
	verbs := true
	for _, word := range strings.Fields(text) {
		bare := strings.TrimRight(word, `,;:.)"'`+"`")
		sub, _, err := cmd.Find([]string{bare})
		switch {
		case verbs && err == nil && sub != cmd:
			cmd = sub
		case value:
			value = false
		case strings.HasPrefix(bare, "--"):
			name, _, given := strings.Cut(bare[2:], "=")
			flag := cmd.Flag(name)
			value = !given && flag != nil && flag.NoOptDefVal == "" && flag.Value.Type() != "bool"
			verbs = false
		case standsIn.MatchString(bare):
			verbs = false
		default:
			return command, len(command) > 0
		}
		if command = append(command, bare); bare != word && !strings.HasSuffix(word, "'") {
			break
		}
	}
	return command, len(command) > 0
}

// misused explains why a command would exit with 2.
func misused(command []string) error {
	cmd, args, err := tree().Find(command)
	if err != nil {
		return err
	}
	if slices.Contains(command, "--help") {
		return nil
	}
	if cmd.HasSubCommands() {
		return errors.New("it is a subject, not a verb")
	}
	if err := cmd.ParseFlags(args); err != nil && !strings.Contains(err.Error(), "unknown flag: --X") {
		return err
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err
	}
	needs := required.FindAllString(optional.ReplaceAllString(cmd.Use, ""), -1)
	switch cmd.CommandPath() {
	case "penstock relay":
		needs = []string{"--config", "--outbox", "--adopt"}
	case "penstock work":
		needs = []string{"--config", "--exec", "--http"}
	}
	if len(needs) > 0 && !slices.ContainsFunc(needs, func(flag string) bool { return slices.Contains(command, flag) }) {
		return fmt.Errorf("it needs %s", strings.Join(needs, " or "))
	}
	return nil
}
