package portable

import (
	"context"
	"fmt"
	"github.com/jackc/pgx/v5"
	"maps"
	"regexp"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pg"
)

// dialect is how an engine differs from PostgreSQL: only in the words that are in braces in sql/. The statements that
// every message and job goes through are the same everywhere, but for {collate}.
type dialect struct {
	engine pg.Engine
	words  map[string]string
	// resultBytes bounds the result of one statement of Fetch and Claim, the last message or job aside; 0: their caller's limit does.
	resultBytes int
	plan        plan
	unsized     bool // a table's size cannot be asked for
	takesTurns  bool // claims of a queue do
	looksUp     bool // a join by "t.x = d.x" looks each row up, whatever the statistics are
	// unusable names the part of a version() that this profile cannot work with, and the next step; empty if it can.
	unusable func(version string) (problem, hint string)

	statements map[string]string // of sql/, with the words
	replacer   *strings.Replacer
}

var dialects = func() map[pg.Engine]*dialect {
	all := map[pg.Engine]*dialect{}
	for _, d := range []dialect{postgres, yugabyte, cockroach, citus} {
		all[d.engine] = d.filled()
	}
	return all
}()

// filled has the statements with the dialect's words, and PostgreSQL's where it has none.
func (d dialect) filled() *dialect {
	words := maps.Clone(postgres.words)
	maps.Copy(words, d.words)
	var pairs []string
	for word, text := range words {
		pairs = append(pairs, "{"+word+"}", text)
	}
	d.replacer = strings.NewReplacer(pairs...)
	d.statements = map[string]string{}
	for name, text := range statements {
		d.statements[name] = d.replacer.Replace(d.joins(text))
	}
	return &d
}

// joined is the first column of a join that only an index carries out: see schema.sql.
var joined = regexp.MustCompile(`= any \(array\[([a-z.]+)\]\)`)

func (d *dialect) joins(text string) string {
	if d.looksUp {
		return joined.ReplaceAllString(text, "= $1")
	}
	return text
}

// bytesBefore is how many bytes of payload a claim takes before a job.
const bytesBefore = "coalesce(sum(case when u.blocked then 0 else octet_length(u.payload) end) over (order by u.priority, u.ts {dir}, u.seq {dir} rows between unbounded preceding and 1 preceding), 0)"

// most bytes of results: limit, or fewer if the engine needs that.
func (d *dialect) most(limit int) int {
	if d.resultBytes > 0 {
		return min(limit, d.resultBytes)
	}
	return limit
}

// dialect of the server, PostgreSQL's until that was asked.
func (s *Store) dialect() *dialect {
	if d := s.speaks.Load(); d != nil {
		return d
	}
	return dialects[pg.PostgreSQL]
}

// text is a statement of sql/, or one that is given, in the server's dialect.
func (s *Store) text(statement string) string {
	d := s.dialect()
	if text, ok := d.statements[statement]; ok {
		return text
	}
	if strings.Contains(statement, "{") {
		return d.replacer.Replace(d.joins(statement))
	}
	return statement
}

// detect asks the server which engine it is, once.
func (s *Store) detect(ctx context.Context) error {
	if s.speaks.Load() != nil {
		return nil
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return s.explain(err)
	}
	defer conn.Release()
	var version string
	var distributes, repeats bool
	var pid int64
	err = conn.QueryRow(ctx, "select version(), exists (select from pg_extension where extname = 'citus'), current_setting('transaction_isolation') = 'repeatable read', pg_backend_pid()").Scan(&version, &distributes, &repeats, &pid)
	if err != nil {
		return s.explain(err)
	}
	s.direct.Store(pid == int64(conn.Conn().PgConn().PID()) && s.pool.Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheDescribe)
	engine := pg.EngineOf(version)
	if engine == pg.PostgreSQL && distributes {
		engine = pg.Citus
	}
	d := dialects[engine]
	if d.unusable != nil {
		if problem, hint := d.unusable(version); problem != "" {
			return penstock.WithHint(fmt.Errorf("%s: %s", version, problem), "%s", hint)
		}
	}
	s.repeats.Store(repeats)
	s.speaks.Store(d)
	return nil
}

// Engine asks the server for its version, and returns "PostgreSQL", "YugabyteDB", "CockroachDB" or "Citus".
func (s *Store) Engine(ctx context.Context) (string, error) {
	err := s.detect(ctx)
	return string(s.dialect().engine), err
}
