package docstest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const errorPage = "docs/reference/errors.md"

var (
	raised       = regexp.MustCompile(`errcode *=>? *'([0-9A-Z]{5})'`)
	exitConstant = regexp.MustCompile(`(?m)^\tExit\w+ += (\d+)$`)
	firstCell    = regexp.MustCompile("(?m)^\\| `?([^|`]+?)`? +\\|")
	logRow       = regexp.MustCompile("(?m)^\\| (WARN|ERROR) `([^`]+)`")
)

// The page of errors has each SQLSTATE that a function raises, each exit code, and each error of the root package and of the
// clients for Python and TypeScript. It has no class that the TypeScript client lacks.
// Each log line on it is one that the program writes at that level.
func TestErrorPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, errorPage))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	section := func(heading string) string {
		_, after, ok := strings.Cut(page, "\n## "+heading+"\n")
		if !ok {
			t.Fatalf("%s has no %q", errorPage, heading)
		}
		body, _, _ := strings.Cut(after, "\n## ")
		return body
	}
	listed := func(heading string) map[string]bool {
		codes := map[string]bool{}
		for _, m := range firstCell.FindAllStringSubmatch(section(heading), -1) {
			codes[m[1]] = true
		}
		return codes
	}

	states := listed("SQLSTATE of Penstock's functions")
	count := 0
	everyFile(t, "store", ".sql", func(path, text string) {
		for _, m := range raised.FindAllStringSubmatch(text, -1) {
			count++
			if !states[m[1]] {
				t.Errorf("%s has no SQLSTATE %s, which %s raises", errorPage, m[1], path)
			}
		}
	})
	if count < 50 {
		t.Errorf("only %d errors found in SQL", count)
	}

	exits := listed("Exit codes")
	source, err := os.ReadFile(filepath.Join(root, "internal/terminal/exit.go"))
	if err != nil {
		t.Fatal(err)
	}
	constants := exitConstant.FindAllStringSubmatch(string(source), -1)
	if len(constants) < 7 {
		t.Errorf("only %d exit codes found", len(constants))
	}
	for _, m := range constants {
		if !exits[m[1]] {
			t.Errorf("%s has no exit code %s", errorPage, m[1])
		}
	}

	errors, err := os.ReadFile(filepath.Join(root, "errors.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\t(Err\w+) += errors\.New`).FindAllStringSubmatch(string(errors), -1) {
		if !strings.Contains(page, "`"+m[1]+"`") {
			t.Errorf("%s has no %s", errorPage, m[1])
		}
	}

	python := listed("Errors of the Python client")
	everyFile(t, "clients/python/src", ".py", func(path, text string) {
		for _, m := range regexp.MustCompile(`(?m)^class (\w+)\((?:Error|Exception)\b`).FindAllStringSubmatch(text, -1) {
			if strings.HasSuffix(m[1], "Error") && !python[m[1]] {
				t.Errorf("%s has no %s of %s", errorPage, m[1], path)
			}
		}
		if strings.HasSuffix(path, "/django/checks.py") {
			for _, m := range regexp.MustCompile(`\berror\((\d),`).FindAllStringSubmatch(text, -1) {
				if id := "penstock.E00" + m[1]; !python[id] {
					t.Errorf("%s has no %s of %s", errorPage, id, path)
				}
			}
		}
	})

	typescript := listed("Errors of the TypeScript client")
	index, err := os.ReadFile(filepath.Join(root, "clients/typescript/src/index.ts"))
	if err != nil {
		t.Fatal(err)
	}
	exported := map[string]bool{"TypeError": true} // JavaScript's own
	everyFile(t, "clients/typescript/src", ".ts", func(path, text string) {
		for _, m := range regexp.MustCompile(`(?m)^export class (\w+Error) extends \w+`).FindAllStringSubmatch(text, -1) {
			name := m[1]
			if strings.HasSuffix(path, "/claim-check.ts") {
				name = "claimCheck." + name
			} else if !regexp.MustCompile(`\b` + name + `\b`).Match(index) {
				continue
			}
			exported[name] = true
			if !typescript[name] {
				t.Errorf("%s has no %s of %s", errorPage, name, path)
			}
		}
	})
	if len(exported) < 7 {
		t.Errorf("only %d errors found in the TypeScript client", len(exported))
	}
	for name := range typescript {
		if strings.HasSuffix(name, "Error") && !strings.Contains(name, " ") && name != "Error" && !exported[name] {
			t.Errorf("%s has %s, which the TypeScript client does not export", errorPage, name)
		}
	}

	levels := map[string]string{} // by what is logged
	for _, folder := range []string{"relay", "work", "writer", "store", "sink", "cmd", "internal"} {
		everyFile(t, folder, ".go", func(path, text string) {
			if strings.HasSuffix(path, "_test.go") {
				return
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if level, text := logged(call); text != "" {
						levels[text] = level
					}
				}
				return true
			})
		})
	}
	lines := logRow.FindAllStringSubmatch(section("Log lines"), -1)
	if len(lines) < 15 {
		t.Errorf("only %d log lines found", len(lines))
	}
line:
	for _, m := range lines {
		for text, level := range levels {
			if strings.HasPrefix(text, m[2]) {
				if level != m[1] {
					t.Errorf("%s has the log line %q as %s, which is logged as %s", errorPage, m[2], m[1], level)
				}
				continue line
			}
		}
		t.Errorf("%s has the log line %q, which nothing writes", errorPage, m[2])
	}
}

// logged is the level and the text of a call of a logger: log.Warn("text"), or Log(slog.LevelWarn, "text").
func logged(call *ast.CallExpr) (level, text string) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	args := call.Args
	switch level = strings.ToUpper(method.Sel.Name); level {
	case "WARN", "ERROR":
	case "LOG":
		if len(args) == 0 {
			return "", ""
		}
		name, ok := args[0].(*ast.SelectorExpr)
		if !ok {
			return "", ""
		}
		level, args = strings.ToUpper(strings.TrimPrefix(name.Sel.Name, "Level")), args[1:]
	default:
		return "", ""
	}
	if len(args) == 0 {
		return "", ""
	}
	lit, ok := args[0].(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", ""
	}
	text, _ = strconv.Unquote(lit.Value)
	return level, text
}

// everyFile reads those of a folder with an extension, but for the data of tests.
func everyFile(t *testing.T, folder, extension string, read func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != extension {
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			read(path, string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
