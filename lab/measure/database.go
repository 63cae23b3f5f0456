package measure

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/quietconn"
	"github.com/penstock/penstock/store/mysql"
	"github.com/penstock/penstock/store/portable"
)

// plain is the store where it keeps plain tables, of the portable profile or of MySQL, else nil.
func (s Setup) plain() interface {
	driver.Store
	driver.QueueStore
} {
	switch store := s.Store.(type) {
	case *portable.Store:
		return store
	case *mysql.Store:
		return store
	}
	return nil
}

// pinned holds a REPEATABLE READ snapshot on a separate connection until release, if that is wanted: vacuum removes nothing that
// became dead after it.
func (s Setup) pinned(ctx context.Context, wanted bool) (release func(), err error) {
	if !wanted {
		return func() {}, nil
	}
	begin := []string{"begin isolation level repeatable read read only", "select count(*) from pg_class"}
	if s.mysql() != nil {
		// The store's sessions end a transaction that stands still for ten seconds.
		begin = []string{"set session autocommit = 1 /*M!100300 , session idle_transaction_timeout = 0 */ /*!80000 , session wait_timeout = 86400 */",
			"set session transaction isolation level repeatable read", "start transaction with consistent snapshot"}
	} else if strings.HasPrefix(s.URL, "sqlite:") {
		return nil, errors.New("--pin needs a server: pass --database-url postgres://…")
	}
	held, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	for _, statement := range begin {
		if err := held.say(statement); err != nil {
			held.close()
			return nil, fmt.Errorf("pinning a snapshot: %w", err)
		}
	}
	return held.close, nil
}

// words are what stands for a table, or a queue, in the files of statements.
func (d Setup) words(table string) map[string]string {
	if d.mysql() != nil {
		return d.mysqlWords(table)
	}
	quoted := pgx.Identifier{d.Schema, table}.Sanitize()
	return map[string]string{
		"schema":      pgx.Identifier{d.Schema}.Sanitize(),
		"schema_name": literal(pgx.Identifier{d.Schema}.Sanitize()),
		"table":       pgx.Identifier{table}.Sanitize(),
		"table_name":  literal(quoted),
		"name":        literal(table),
		"dequeue":     pgx.Identifier{"dequeue_" + table}.Sanitize(),
		// What Go calls, by the queue's own functions.
		"own_take":         pgx.Identifier{"_" + table + ".take"}.Sanitize(),
		"own_claim":        pgx.Identifier{"_" + table + ".claim"}.Sanitize(),
		"own_ack":          pgx.Identifier{"_" + table + ".ack"}.Sanitize(),
		"own_enqueue":      pgx.Identifier{"_" + table + ".enqueue"}.Sanitize(),
		"own_enqueue_many": pgx.Identifier{"_" + table + ".enqueue_many"}.Sanitize(),
	}
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// session is a connection of one goroutine that measures: its statements are
// prepared and nothing is decoded, so that the client takes little of the machine.
// When its context ends, so does what it waits for.
type session struct {
	conn    *pgx.Conn
	my      *mysqlSession // instead of conn
	ctx     context.Context
	free    func() bool
	claimed [][][]byte // by ModeCarried and not ended
	leases  []int64    // the same on plain tables
}

func (d Setup) connect(ctx context.Context) (*session, error) {
	if d.mysql() != nil {
		return d.connectMySQL(ctx)
	}
	config, err := pgx.ParseConfig(d.URL)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = "bench"
	config.DialFunc = quietconn.Wrap(config.DialFunc) // as the store's
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "set default_transaction_isolation = 'read committed'"); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	// Cheaper than to watch the context in every call.
	free := context.AfterFunc(ctx, func() { _ = conn.PgConn().Conn().SetDeadline(time.Unix(1, 0)) })
	return &session{conn: conn, ctx: ctx, free: free}, nil
}

func (s *session) close() {
	if s.my != nil {
		s.my.close()
		return
	}
	s.free()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 5*time.Second)
	defer cancel()
	_ = s.conn.Close(ctx)
}

// prepare makes statements known to the server by their names.
func (s *session) prepare(sql statements, names ...string) error {
	for _, name := range names {
		if err := s.known(name, sql[name]); err != nil {
			return s.explain(name, err)
		}
	}
	return nil
}

func (s *session) known(name, sql string) error {
	if s.my != nil {
		return s.my.prepare(s.ctx, name, sql)
	}
	_, err := s.conn.PgConn().Prepare(s.ctx, name, sql, nil)
	return err
}

var inBinary = []int16{pgx.BinaryFormatCode}

// run executes a prepared statement and returns its rows as they came, in binary; of MySQL none.
func (s *session) run(name string, params ...[]byte) ([][][]byte, error) {
	if s.my != nil {
		if err := s.my.run(s.ctx, name, params); err != nil {
			return nil, s.explain(name, err)
		}
		return nil, nil
	}
	r := s.conn.PgConn().ExecPrepared(context.Background(), name, params, inBinary, inBinary).Read()
	if r.Err != nil {
		return nil, s.explain(name, r.Err)
	}
	return r.Rows, nil
}

// say sends a command that has neither parameters nor rows: begin, commit.
func (s *session) say(command string) error {
	if s.my != nil {
		return s.do(command, command)
	}
	if _, err := s.conn.PgConn().Exec(context.Background(), command).ReadAll(); err != nil {
		return s.explain(command, err)
	}
	return nil
}

// commitWith runs a prepared statement and commits, in one round trip. COMMIT is prepared, as pgx does it in a batch.
func (s *session) commitWith(name string, params ...[]byte) error {
	var b pgconn.Batch
	b.ExecPrepared(name, params, inBinary, inBinary)
	b.ExecPrepared("commit", nil, nil, nil)
	if _, err := s.conn.PgConn().ExecBatch(context.Background(), &b).ReadAll(); err != nil {
		return s.explain(name, err)
	}
	return nil
}

// do executes a statement once.
func (s *session) do(what, sql string, args ...any) (err error) {
	if s.my != nil {
		_, err = s.my.conn.ExecContext(s.ctx, sql, args...)
	} else {
		_, err = s.conn.Exec(s.ctx, sql, args...)
	}
	if err != nil {
		return s.explain(what, err)
	}
	return nil
}

// value executes a statement that returns one value.
func (s *session) value(what, sql string, into any, args ...any) (err error) {
	if s.my != nil {
		err = s.my.conn.QueryRowContext(s.ctx, sql, args...).Scan(into)
	} else {
		err = s.conn.QueryRow(s.ctx, sql, args...).Scan(into)
	}
	if err != nil {
		return s.explain(what, err)
	}
	return nil
}

func (s *session) explain(what string, err error) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx) // the deadline's effect on the connection is expected
	}
	return fmt.Errorf("%s: %w", what, err)
}

//go:embed sql/*.sql
var sqlFiles embed.FS

// statements are those of one file, by their names.
type statements map[string]string

// read is readSQL of the file in the database's dialect.
func (d Setup) read(file string, words map[string]string) statements {
	if d.mysql() != nil {
		file = "mysql_" + file
	}
	return readSQL(file, words)
}

// readSQL reads the statements of a file, each behind a line "-- name: X". words
// replace {word} in them. A file that is missing or has no names was built wrong.
func readSQL(file string, words map[string]string) statements {
	text, err := sqlFiles.ReadFile("sql/" + file + ".sql")
	if err != nil {
		panic(err)
	}
	replace := make([]string, 0, 2*len(words))
	for word, by := range words {
		replace = append(replace, "{"+word+"}", by)
	}
	replacer := strings.NewReplacer(replace...)
	out := statements{}
	for i, part := range strings.Split(string(text), "-- name: ") {
		if i == 0 {
			continue // the file's own comment
		}
		name, sql, _ := strings.Cut(part, "\n")
		lines := strings.Split(sql, "\n")
		for len(lines) > 0 && (lines[len(lines)-1] == "" || strings.HasPrefix(lines[len(lines)-1], "--")) {
			lines = lines[:len(lines)-1] // the comment of the next one
		}
		sql = replacer.Replace(strings.TrimSuffix(strings.Join(lines, "\n"), ";"))
		if at := strings.IndexByte(sql, '{'); at >= 0 {
			panic(fmt.Sprintf("bench: %s of %s has a word that nothing replaces: %s", name, file, sql[at:]))
		}
		out[name] = sql
	}
	return out
}
