package docstest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documented are the comments of a file that go doc shows: of the package, and of what is exported.
func documented(file *ast.File) (texts []string) {
	add := func(c *ast.CommentGroup) {
		if c != nil {
			texts = append(texts, c.Text())
		}
	}
	add(file.Doc)
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() {
				add(d.Doc)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if !s.Name.IsExported() {
						continue
					}
					add(d.Doc)
					add(s.Doc)
					for _, c := range members(s.Type) {
						add(c)
					}
				case *ast.ValueSpec:
					if s.Names[0].IsExported() {
						add(d.Doc)
						add(s.Doc)
					}
				}
			}
		}
	}
	return texts
}

// members are the comments of the exported fields of a struct and the methods of an interface.
func members(t ast.Expr) (all []*ast.CommentGroup) {
	var list *ast.FieldList
	switch t := t.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	default:
		return nil
	}
	for _, f := range list.List {
		if len(f.Names) > 0 && f.Names[0].IsExported() {
			all = append(all, f.Doc, f.Comment)
		}
	}
	return all
}

// goSentences leaves out code, which is indented.
func goSentences(number int, text string) (all []line) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		var lines []string
		for l := range strings.Lines(paragraph) {
			if !strings.HasPrefix(l, "\t") && !strings.HasPrefix(l, "  ") {
				lines = append(lines, strings.TrimSpace(l))
			}
		}
		all = append(all, split(number, strings.Join(lines, " "))...)
		number += strings.Count(paragraph, "\n") + 2
	}
	return all
}

// inside are the sentences of all comments in SQL and Go, by their file.
func inside(t *testing.T) map[string][]line {
	t.Helper()
	all := map[string][]line{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != root && skipped(d.Name()) || d.Name() == "golden" {
				return filepath.SkipDir
			}
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		switch {
		case name == "clients/python/src/penstock/django/schema.sql": // a build of the wheel makes it of the others
		case filepath.Ext(name) == ".sql":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all[name] = sqlSentences(string(text))
		case filepath.Ext(name) == ".go":
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			if ast.IsGenerated(file) {
				return nil
			}
			for _, c := range file.Comments {
				if exampleOutput.MatchString(c.Text()) {
					continue
				}
				all[name] = append(all[name], goSentences(set.Position(c.Pos()).Line, c.Text())...)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 300 {
		t.Fatalf("only %d files found", len(all))
	}
	return all
}

var exampleOutput = regexp.MustCompile(`^(Unordered output|Output):`)

var sqlComment = regexp.MustCompile(`^(.*?)--+ ?(.*)$`)

// sqlSentences are those of comments: of lines that follow each other, and of each comment behind a statement.
func sqlSentences(text string) (all []line) {
	var group []string
	begin, n := 0, 0
	flush := func() {
		all = append(all, goSentences(begin, strings.Join(group, "\n"))...)
		group = nil
	}
	for l := range strings.Lines(text) {
		n++
		m := sqlComment.FindStringSubmatch(strings.TrimRight(l, "\n"))
		if m == nil || strings.TrimSpace(m[1]) != "" {
			flush()
		}
		if m == nil {
			continue
		}
		if group == nil {
			begin = n
		}
		group = append(group, m[2])
	}
	flush()
	return all
}
