package docstest

import (
	"go/ast"
	"strings"
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

// goSentences leaves out what is indented: code.
func goSentences(text string) (all []line) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		var lines []string
		for l := range strings.Lines(paragraph) {
			if !strings.HasPrefix(l, "\t") && !strings.HasPrefix(l, "  ") {
				lines = append(lines, strings.TrimSpace(l))
			}
		}
		all = append(all, split(0, strings.Join(lines, " "))...)
	}
	return all
}
