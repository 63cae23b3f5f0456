package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/test/docblock"
)

// No test is decided by how long something takes: it waits for a condition, and a deadline
// only ends what has failed already. This finds what speaks against that, in tests and in
// what only tests import:
//
//   - sleep: time.Sleep and <-time.After, unless that is the pause of a loop that awaits a
//     condition, and time.AfterFunc, unless its duration is called patience
//   - quiet: a select, outside of such a loop, with a time.After that does not fail the test
//   - elapsed: a comparison with the time that has passed or with now, unless it is the
//     deadline of such a loop or what a helper called eventually awaits. That something is not
//     dated before a moment that was noted before it, and bounds of an hour, are fine
//   - short: a context, outside of such a loop, that ends after milliseconds
//
// In a bubble of testing/synctest time is made up, so all of it is allowed there and in what is used
// nowhere else. Benchmarks decide nothing. Everything else is in timeAllowed, with its reason.
func TestTimeDecidesNoTest(t *testing.T) {
	packages := packagesForTests(t)
	if len(packages) < 20 {
		t.Errorf("only %d folders with tests: is it the module?", len(packages))
	}
	used := map[string]bool{}
	for _, files := range packages {
		for _, f := range decidedByTime(t, files) {
			if key := f.file + " " + f.function; timeAllowed[key] != "" {
				used[key] = true
			} else {
				t.Errorf("%s:%d: %s in %s. Wait for a condition, or say in timeAllowed why it decides nothing", f.file, f.line, f.what, f.function)
			}
		}
	}
	for key := range timeAllowed {
		if !used[key] {
			t.Errorf("timeAllowed has %q, where nothing is found any more", key)
		}
	}
}

// packagesForTests returns the text of tests and of packages that only tests import: by folder, by file.
func packagesForTests(t *testing.T) map[string]map[string]string {
	root := docblock.Root(t)
	packages := map[string]map[string]string{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && file != root && (strings.HasPrefix(name, ".") || slices.Contains([]string{"testdata", "node_modules", "bin"}, name)) {
			return filepath.SkipDir
		}
		rel, _ := filepath.Rel(root, file)
		rel = filepath.ToSlash(rel)
		folder := path.Dir(rel)
		if d.IsDir() || !strings.HasSuffix(rel, ".go") || !strings.HasSuffix(rel, "_test.go") && !slices.ContainsFunc(onlyForTests, func(room string) bool { return within(folder, room) }) {
			return nil
		}
		text, err := os.ReadFile(file)
		if packages[folder] == nil {
			packages[folder] = map[string]string{}
		}
		packages[folder][rel] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

var onlyForTests = []string{"store/*test", "sink/*test", "internal/test/postgrestest", "internal/test*", "internal/test/tcpproxy", "penstocktest", "clients/conformance"}

type finding struct {
	file, function string
	line           int
	what           string
}

// decidedByTime returns the findings in the files of a folder.
func decidedByTime(t *testing.T, files map[string]string) (all []finding) {
	t.Helper()
	fset := token.NewFileSet()
	var decls []declared
	for name, text := range files {
		f, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			decls = append(decls, declarations(name, d)...)
		}
	}
	for _, d := range reached(decls) {
		w := finder{measured: map[string]bool{}, now: map[string]bool{}}
		w.learn(d.node)
		w.learn(d.node) // from one variable to the next
		visit(d.node, nil, func(n ast.Node, up []ast.Node) {
			if what := w.objection(n, up); what != "" {
				all = append(all, finding{d.file, d.full, fset.Position(n.Pos()).Line, what})
			}
		})
	}
	return all
}

// declared is something that a package declares.
type declared struct {
	file string
	name string // of a method, its type's
	full string // its reported name: Type.method
	node ast.Node
	root bool // it runs, or can be used, without being named in this package
}

func declarations(file string, d ast.Decl) (all []declared) {
	exported := !strings.HasSuffix(file, "_test.go")
	switch d := d.(type) {
	case *ast.FuncDecl:
		name, full := d.Name.Name, d.Name.Name
		if d.Recv != nil {
			name = find(d.Recv.List[0].Type, func(n ast.Node) bool { _, ok := n.(*ast.Ident); return ok }).(*ast.Ident).Name
			full = name + "." + full
		}
		runs := d.Recv == nil && slices.ContainsFunc([]string{"Test", "Fuzz", "Example", "init"}, func(p string) bool { return strings.HasPrefix(name, p) })
		all = append(all, declared{file, name, full, d, exported || runs})
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				all = append(all, declared{file, spec.Name.Name, spec.Name.Name, spec, exported})
			case *ast.ValueSpec:
				for _, n := range spec.Names {
					all = append(all, declared{file, n.Name, n.Name, spec, exported || n.Name == "_"})
				}
			}
		}
	}
	return all
}

// reached returns the declarations that tests use outside of bubbles and benchmarks.
func reached(decls []declared) (all []declared) {
	named := map[string]bool{}
	add := func(which func(declared) bool) {
		for _, d := range decls {
			if which(d) && !slices.Contains(all, d) {
				all = append(all, d)
			}
		}
	}
	add(func(d declared) bool { return d.root })
	for i := 0; i < len(all); i++ {
		visit(all[i].node, nil, func(n ast.Node, _ []ast.Node) {
			if id, ok := n.(*ast.Ident); ok && !named[id.Name] {
				named[id.Name] = true
				add(func(d declared) bool { return d.name == id.Name && !strings.HasPrefix(d.name, "Benchmark") })
			}
		})
	}
	return all
}

// visit calls f with each node outside of bubbles and what it is in, the outermost first.
func visit(n ast.Node, up []ast.Node, f func(ast.Node, []ast.Node)) {
	ast.Inspect(n, func(n ast.Node) bool {
		if n == nil {
			up = up[:len(up)-1]
			return false
		}
		if isCall(n, "synctest", "Test") {
			return false
		}
		f(n, up)
		up = append(up, n)
		return true
	})
}

// find returns the first node in n that matches, or nil.
func find(n ast.Node, matches func(ast.Node) bool) (first ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		if first == nil && n != nil && matches(n) {
			first = n
		}
		return first == nil
	})
	return first
}

// isCall reports whether n calls one of the functions of a package, or of any if pkg is empty.
func isCall(n ast.Node, pkg string, names ...string) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	if id, ok := call.Fun.(*ast.Ident); ok {
		return pkg == "" && slices.Contains(names, id.Name)
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains(names, sel.Sel.Name) {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return pkg == "" || ok && id.Name == pkg
}

// finder knows, of a function, the variables that hold how long something took, and those
// that hold a time by the clock.
type finder struct{ measured, now map[string]bool }

func (w finder) learn(in ast.Node) {
	visit(in, nil, func(n ast.Node, _ []ast.Node) {
		a, ok := n.(*ast.AssignStmt)
		if !ok {
			return
		}
		for i, left := range a.Lhs {
			right := a.Rhs[min(i, len(a.Rhs)-1)]
			if id, ok := left.(*ast.Ident); ok && id.Name != "_" && len(a.Lhs) == len(a.Rhs) {
				w.measured[id.Name] = w.measured[id.Name] || w.isMeasured(right)
				w.now[id.Name] = w.now[id.Name] || w.isNow(right)
			}
		}
	})
}

// isMeasured reports whether an expression has a time that has passed in it.
func (w finder) isMeasured(e ast.Expr) bool {
	if _, ok := e.(*ast.FuncLit); ok {
		return false
	}
	return find(e, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		return isCall(n, "time", "Since", "Until") || isCall(n, "", "Sub", "Elapsed") || ok && w.measured[id.Name]
	}) != nil
}

// isNow reports whether an expression is the time, or that and something added to it.
func (w finder) isNow(e ast.Expr) bool {
	for isCall(e, "", "Add", "UTC", "Truncate", "Round") {
		e = e.(*ast.CallExpr).Fun.(*ast.SelectorExpr).X
	}
	id, ok := e.(*ast.Ident)
	return isCall(e, "time", "Now") || ok && w.now[id.Name]
}

// objection names the fault of a node, or "" if nothing is.
func (w finder) objection(n ast.Node, up []ast.Node) string {
	loop := waitingLoop(up)
	switch n := n.(type) {
	case *ast.CallExpr:
		switch {
		case isCall(n, "time", "AfterFunc") && !names(n.Args[0], "patience", "Patience"), isCall(n, "time", "Sleep") && (loop == nil || !lastOf(loop, up)):
			return "sleep"
		case isCall(n, "", "WithTimeout") && names(n, "Millisecond", "Microsecond") && loop == nil:
			return "short"
		case isCall(n, "", "After", "Before") && len(n.Args) == 1 && !isCall(n, "time", "After"):
			other := n.Fun.(*ast.SelectorExpr).X
			_, noted := n.Args[0].(*ast.Ident)
			if noted = noted && isCall(n, "", "Before"); !noted && (w.isNow(other) || w.isNow(n.Args[0])) && !names(n, hours...) && !w.isAwaited(n, up) {
				return "elapsed"
			}
		}
	case *ast.BinaryExpr:
		if slices.Contains([]token.Token{token.LSS, token.GTR, token.LEQ, token.GEQ}, n.Op) && (w.isMeasured(n.X) || w.isMeasured(n.Y)) &&
			!names(n, hours...) && !w.isAwaited(n, up) {
			return "elapsed"
		}
	case *ast.ExprStmt:
		if _, one := up[len(up)-1].(*ast.CommClause); !one && find(n, isAfter) == n.X {
			return "sleep"
		}
	case *ast.CommClause:
		if n.Comm != nil && find(n.Comm, isAfter) != nil && loop == nil && !fails(n) {
			return "quiet"
		}
	}
	return ""
}

// hours are the names of what lasts one, in time and in the suites.
var hours = []string{"Hour", "LongLease"}

// names reports whether one of the names is in n.
func names(n ast.Node, list ...string) bool {
	return find(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		return ok && slices.Contains(list, id.Name)
	}) != nil
}

// lastOf reports whether the innermost statement is the end of a round of the loop.
func lastOf(loop *ast.ForStmt, up []ast.Node) bool {
	if loop.Post == up[len(up)-1] {
		return true
	}
	var list []ast.Stmt
	switch in := up[len(up)-2].(type) {
	case *ast.BlockStmt:
		list = in.List
	case *ast.CaseClause:
		list = in.Body
	}
	if n := len(list); n > 1 {
		if b, ok := list[n-1].(*ast.BranchStmt); ok && b.Tok == token.CONTINUE {
			list = list[:n-1]
		}
	}
	return len(list) > 0 && list[len(list)-1] == up[len(up)-1]
}

// isAfter reports whether n is <-time.After(…).
func isAfter(n ast.Node) bool {
	u, ok := n.(*ast.UnaryExpr)
	return ok && u.Op == token.ARROW && isCall(u.X, "time", "After")
}

// fails reports whether a clause fails the test, or returns a failure.
func fails(n ast.Node) bool {
	return find(n, func(n ast.Node) bool {
		r, ok := n.(*ast.ReturnStmt)
		return isCall(n, "", "Error", "Errorf", "Fatal", "Fatalf") || ok && len(r.Results) > 0
	}) != nil
}

// waitingLoop returns the innermost loop that does not count but continues until a condition holds.
func waitingLoop(up []ast.Node) *ast.ForStmt {
	for _, n := range slices.Backward(up) {
		switch n := n.(type) {
		case *ast.FuncLit, *ast.FuncDecl, *ast.RangeStmt:
			return nil
		case *ast.ForStmt:
			_, counts := n.Post.(*ast.IncDecStmt)
			if a, ok := n.Post.(*ast.AssignStmt); counts || ok && a.Tok != token.ASSIGN {
				return nil
			}
			return n
		}
	}
	return nil
}

// isAwaited reports whether a comparison is awaited, or ends a loop that awaits something else and
// has a time from before the loop.
func (w finder) isAwaited(n ast.Expr, up []ast.Node) bool {
	loop := waitingLoop(up)
	if loop == nil {
		return slices.ContainsFunc(up, func(n ast.Node) bool { return isCall(n, "", "eventually", "Eventually") })
	}
	if loop.Cond != nil && loop.Cond.Pos() <= n.Pos() && n.End() <= loop.Cond.End() {
		and, ok := loop.Cond.(*ast.BinaryExpr)
		return ok && and.Op == token.LAND
	}
	return find(loop.Body, func(in ast.Node) bool {
		a, ok := in.(*ast.AssignStmt)
		return ok && slices.ContainsFunc(a.Lhs, func(left ast.Expr) bool {
			id, ok := left.(*ast.Ident)
			return ok && (w.now[id.Name] || w.measured[id.Name]) && find(n, func(n ast.Node) bool { other, ok := n.(*ast.Ident); return ok && other.Name == id.Name }) != nil
		})
	}) == nil
}
