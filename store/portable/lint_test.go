package portable_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	pgquery "github.com/wasilibs/go-pgquery"
)

// Functions that every engine has which the profile is for. Another one: look there first.
var functions = []string{"array_agg", "clock_timestamp", "count", "current_setting", "extract", "format_type", "generate_series", "jsonb_to_recordset", "jsonb_typeof", "max", "md5", "min", "nextval", "now",
	"octet_length", "pg_backend_pid", "pg_total_relation_size", "position", "row_number", "set_config", "string_agg", "substr", "sum", "to_regclass", "unnest", "version"}

// nodes that no statement may have, by their names in the parser's tree.
var nodes = map[string]string{
	"ListenStmt": "LISTEN", "NotifyStmt": "NOTIFY", "UnlistenStmt": "UNLISTEN", "TruncateStmt": "TRUNCATE", "VariableSetStmt": "SET, which is the session's",
	"CreateTrigStmt": "a trigger", "TriggerTransition": "REFERENCING", "CreateFunctionStmt": "a function", "DoStmt": "DO", "LockStmt": "LOCK", "PrepareStmt": "PREPARE",
	"DeclareCursorStmt": "a cursor", "TransactionStmt": "BEGIN or COMMIT in a statement's text", "RuleStmt": "a rule", "MergeStmt": "MERGE",
}

// conflicts are the statements that may have ON CONFLICT: nothing that is done for each message or job without a
// dedup key has it. On YugabyteDB each row is a flush.
var conflicts = regexp.MustCompile(`(?i)\.(dedup|received|gaps|key_heads|schedules|turns) `)

// lint says what of a statement only PostgreSQL would run, or run well.
func lint(text string) (problems []string, err error) {
	tree, err := pgquery.ParseToJSON(text)
	if err != nil {
		return nil, err
	}
	var parsed struct {
		Stmts []struct {
			Stmt map[string]any `json:"stmt"`
		} `json:"stmts"`
	}
	if err := json.Unmarshal([]byte(tree), &parsed); err != nil {
		return nil, err
	}
	if len(parsed.Stmts) != 1 {
		problems = append(problems, fmt.Sprintf("%d statements in one text", len(parsed.Stmts)))
	}
	changed := map[any]bool{} // tables
	var walk func(name string, node any)
	walk = func(name string, node any) {
		if what, bad := nodes[name]; bad {
			problems = append(problems, what)
		}
		switch n := node.(type) {
		case []any:
			for _, e := range n {
				walk("", e)
			}
		case map[string]any:
			switch name {
			case "InsertStmt", "UpdateStmt", "DeleteStmt":
				relation, _ := n["relation"].(map[string]any)
				if changed[relation["relname"]] { // CockroachDB refuses it: https://github.com/cockroachdb/cockroach/issues/70731
					problems = append(problems, "several changes of one table")
				}
				changed[relation["relname"]] = true
			case "FuncCall":
				if f := last(n["funcname"]); !slices.Contains(functions, f) {
					problems = append(problems, "the function "+f)
				}
			case "ColumnRef":
				if c := last(n["fields"]); slices.Contains([]string{"xmin", "xmax", "cmin", "cmax", "ctid", "tableoid"}, c) {
					problems = append(problems, "the column "+c)
				}
			case "onConflictClause":
				if infer, _ := n["infer"].(map[string]any); infer["whereClause"] != nil {
					problems = append(problems, "ON CONFLICT on a partial index")
				}
				if !conflicts.MatchString(text) {
					problems = append(problems, "ON CONFLICT")
				}
			case "Constraint":
				if typ, _ := n["contype"].(string); n["deferrable"] == true || strings.HasPrefix(typ, "CONSTR_ATTR_DEFER") || n["contype"] == "CONSTR_FOREIGN" || n["contype"] == "CONSTR_EXCLUSION" {
					problems = append(problems, fmt.Sprint("a constraint ", n["contype"]))
				}
			case "relation":
				if n["relpersistence"] == "t" {
					problems = append(problems, "a temporary table, which is the session's")
				}
			case "TypeName", "typeName", "columnType":
				if typ := last(n["names"]); strings.HasPrefix(typ, "xid") || strings.Contains(typ, "snapshot") || strings.HasPrefix(typ, "reg") && typ != "regclass" {
					problems = append(problems, "the type "+typ)
				}
			}
			for k, v := range n {
				walk(k, v)
			}
		}
	}
	for _, s := range parsed.Stmts {
		walk("", s.Stmt)
	}
	return problems, nil
}

// last is the last of the names that a node consists of.
func last(names any) string {
	list, _ := names.([]any)
	if len(list) == 0 {
		return ""
	}
	of, _ := list[len(list)-1].(map[string]any)
	s, _ := of["String"].(map[string]any)
	text, _ := s["sval"].(string)
	return text
}

var (
	isSQL       = regexp.MustCompile(`(?i)^\s*(select|insert|update|delete|create (?:table|index|schema|sequence)|drop (?:table|schema)|alter|with recursive|truncate|listen|set)\s`)
	placeholder = regexp.MustCompile(`\{[a-z_]+\}`)
	inList      = regexp.MustCompile(`\{([a-z_.]+) in [a-z_]+\}`)
)

// texts are the statements of the package: the files of sql/, schema.sql, and what its Go code has of them, and internal/tables.
func texts(t *testing.T) map[string]string {
	all := map[string]string{}
	paths, err := filepath.Glob("sql/*.sql")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, p := range paths {
		if strings.HasPrefix(p, "sql/distribut") { // for Citus alone
			continue
		}
		switch text := read(p); filepath.Base(p) {
		case "backlog.sql":
			all[p] = "select 1 from {schema}.subscriptions s " + text
		case "blocked.sql":
			all[p] = "select " + text + " from t"
		case "limits.sql":
			all[p] = "select 1 from " + text
		case "room.sql", "room_in_turn.sql", "room_by.sql", "in_turn.sql", "start_at.sql":
			all[p] = "select " + text + " from {limits}"
		default:
			all[p] = text
		}
	}
	for i, s := range strings.Split(read("schema.sql"), ";\n\n") {
		all[fmt.Sprint("schema.sql ", i)] = s
	}
	paths, _ = filepath.Glob("*.go")
	shared, _ := filepath.Glob("../../internal/tables/*.go")
	for _, p := range append(paths, shared...) {
		if strings.HasSuffix(p, "_test.go") || p == "distributed.go" {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, p, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text, ok := constant(e)
			if ok && isSQL.MatchString(text) {
				if strings.Contains(text, " set /* */ where") {
					text = strings.Replace(text, "/* */", "x = 1", 1)
				}
				all[set.Position(n.Pos()).String()] = text
			}
			return !ok
		})
	}
	return all
}

// constant is a text, with a comment for each of its parts that is none.
func constant(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		x, okX := constant(e.X)
		y, okY := constant(e.Y)
		if e.Op != token.ADD || !okX && !okY {
			return "", false
		}
		for _, part := range []struct {
			text *string
			ok   bool
		}{{&x, okX}, {&y, okY}} {
			if !part.ok {
				*part.text = "/* */"
			}
		}
		return x + y, true
	}
	return "", false
}

// filled has something in place of what a statement is completed with.
func filled(text string) string {
	text = strings.NewReplacer("{beyond}", "t.ts > $3", "{entry}", "e.seq = t.seq", "{landed}", "t.seq <> all ($4::bigint[])", "{order_t}", "t.ts, t.seq", "{order_c}", "c.ts, c.seq", "{order_p}", "p.ts, p.seq", "{order_m}", "m.ts, m.seq",
		"{more_t}", "", "{more_c}", "", "{more_p}", "", "{more_row}", "", "{backlog}", "cross join (select 1) b", "{same_p}", "t.seq = p.seq", "{same_e}", "t.seq = e.seq", "{same_d}", "t.seq = d.seq", "{rows}", "unnest($4::bigint[]) d(seq)", "{oldest}", "t.ts", "{parked_since}", "e.ts",
		"{source}", "s.t", "{row}", "r.id = d.seq", "{allowed}", "true", "{forgiven}", "x = 1", "{failed}", "x = d.error").Replace(text)
	text = strings.NewReplacer("{before}", "0", "{by_index}", "true", "{by_plan}", "true", "{collate}", ` collate "C"`, "{seq}", "generated by default as identity", "{key_bucket}", "md5(key)::integer", "{split}", "",
		"{outbox_key}", "primary key (bucket, ts, seq)", "{queue_key}", "primary key (group_key, priority, ts, seq)", "{buckets}", "16", "{ids}", "'s.job_ids'", "{schema}", "s", "{table}", "s.t", "{jobs}", "s.t", "{lock}", "", "{lock_jobs}", "cross join lateral (select t.seq from s.t t where t.seq = p.seq for update of t skip locked) t", "{pass_taken}", "", "{side_by_side}", "true", "{values}", "(1)", "{clock}", "clock_timestamp()", "{lease}", "s.members s where s.epoch = 1", "{dir}", "desc", "{sign}", "", "{version}", "1", "{blocked}", "true").Replace(text)
	text = strings.NewReplacer("{limits}", "s.i cross join s.b where true", "{room_of_group}", "", "{running_groups}", "", "s./* */", "s.x", " and /* */", " and true").Replace(text)
	text = strings.ReplaceAll(text, "distinct /* */", "distinct x")
	return placeholder.ReplaceAllString(inList.ReplaceAllString(text, "$1 = any ($$1)"), "$$1")
}

// No statement has what some engine does not have, or what is slow on one.
func TestLint(t *testing.T) {
	t.Parallel()
	n := 0
	for at, text := range texts(t) {
		problems, err := lint(filled(text))
		if err != nil {
			t.Errorf("%s: %v: %s", at, err, text)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", at, p)
		}
		n++
	}
	if n < 100 {
		t.Errorf("only %d statements were found", n)
	}
}

// inTransaction lists the definitions in a file's code that neither the pool itself sends nor define, which uses the pool. On some engines
// they are not rolled back with their transaction, and on none are they harmless there.
func inTransaction(set *token.FileSet, file *ast.File) (found []string) {
	ddl := regexp.MustCompile(`(?i)^\s*(create|drop|alter|truncate)[ _]`)
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains([]string{"Exec", "Query", "QueryRow", "Queue"}, f.Sel.Name) {
			return true
		}
		if on, ok := f.X.(*ast.SelectorExpr); ok && on.Sel.Name == "pool" {
			return true
		}
		for _, arg := range call.Args {
			ast.Inspect(arg, func(n ast.Node) bool {
				e, ok := n.(ast.Expr)
				if !ok {
					return true
				}
				if text, ok := constant(e); ok && ddl.MatchString(text) {
					found = append(found, set.Position(e.Pos()).String()+": "+text)
					return false
				}
				return true
			})
		}
		return true
	})
	return found
}

func TestNoDefinitionInATransaction(t *testing.T) {
	t.Parallel()
	paths, _ := filepath.Glob("*.go")
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, p, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range inTransaction(set, file) {
			t.Errorf("%s is sent within a transaction", f)
		}
	}
	for code, want := range map[string]int{
		`tx.Exec(ctx, "create table x ()")`:                                        1,
		`tx.Exec(ctx, s.sql("create_outbox", name))`:                               1,
		`b.Queue("drop table " + x)`:                                               1,
		`s.pool.Exec(ctx, "drop schema x")`:                                        0,
		`s.define(ctx, s.sql("create_outbox", name))`:                              0,
		`tx.Exec(ctx, "insert into t values (1)")`:                                 0,
		`pgx.BeginFunc(ctx, p, func(tx pgx.Tx) { tx.Exec(ctx, "alter table t") })`: 1,
	} {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, "x.go", "package x\nfunc f() { "+code+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(inTransaction(set, file)); n != want {
			t.Errorf("%s: %d found, want %d", code, n, want)
		}
	}
}

// Each rule finds what it is for.
func TestLintFinds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"select xmin from t":                              "the column xmin",
		"select t.ctid from t":                            "the column ctid",
		"select 1 from t where pg_try_advisory_lock(1)":   "the function pg_try_advisory_lock",
		"select pg_catalog.pg_current_snapshot()":         "the function pg_current_snapshot",
		"select '1'::xid8":                                "the type xid8",
		"listen x":                                        "LISTEN",
		"truncate t":                                      "TRUNCATE",
		"set search_path = x":                             "SET, which is the session's",
		"select 1; select 2":                              "2 statements in one text",
		"insert into t values (1) on conflict do nothing": "ON CONFLICT",
		"insert into s.dedup as d values (1) on conflict (a) where b do nothing":                                "ON CONFLICT on a partial index",
		"with d as (delete from t returning a) insert into t select a from d":                                   "several changes of one table",
		"create temporary table t (a int)":                                                                      "a temporary table, which is the session's",
		"create table t (a int references u)":                                                                   "a constraint CONSTR_FOREIGN",
		"create trigger r after insert on t referencing new table as n for each statement execute function f()": "REFERENCING",
		"create constraint trigger r after insert on t for each row execute function f()":                       "a trigger",
		"create function f() returns int language sql as 'select 1'":                                            "a function",
		"do $$ begin end $$":            "DO",
		"notify x":                      "NOTIFY",
		"unlisten x":                    "UNLISTEN",
		"lock table t":                  "LOCK",
		"prepare p as select 1":         "PREPARE",
		"declare c cursor for select 1": "a cursor",
		"begin":                         "BEGIN or COMMIT in a statement's text",
		"commit":                        "BEGIN or COMMIT in a statement's text",
		"create rule r as on insert to t do nothing":                 "a rule",
		"merge into t using u on t.a = u.a when matched then delete": "MERGE",
		"select xmax from t":                                          "the column xmax",
		"select t.cmin, t.a from t":                                   "the column cmin",
		"select t.tableoid from t":                                    "the column tableoid",
		"select txid_current()":                                       "the function txid_current",
		"select pg_notify('a', 'b')":                                  "the function pg_notify",
		"select '1:1:'::pg_snapshot":                                  "the type pg_snapshot",
		"create table t (a xid8)":                                     "the type xid8",
		"select 't'::regprocedure":                                    "the type regprocedure",
		"create table t (a int unique deferrable initially deferred)": "a constraint CONSTR_ATTR_DEFERRABLE",
		"create table t (a int, exclude using gist (a with =))":       "a constraint CONSTR_EXCLUSION",
		"with a as (insert into t values (1) returning a), b as (update t set a = 1 returning a) select 1": "several changes of one table",
	} {
		if problems, err := lint(text); err != nil || !slices.Contains(problems, want) {
			t.Errorf("%s: found %q, %v, want %q", text, problems, err, want)
		}
	}
}
