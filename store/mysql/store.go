// Package mysql keeps outboxes, queues and inboxes on plain tables of MariaDB and MySQL, in InnoDB or in MyRocks.
// It has the design of store/portable in MySQL's dialect. DESIGN.md describes where it differs.
package mysql

import (
	"cmp"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/retry"
	"github.com/penstock/penstock/internal/schema"
	"github.com/penstock/penstock/internal/tables"
)

// DefaultSchema is the database with the tables unless Options names another. Business tables may be in any other database of
// the server, because a transaction spans them.
const DefaultSchema = "penstock"

// Options of a Store. The zero value is usable.
type Options struct {
	// Schema is the database of the tables. Default "penstock".
	Schema string
	// Engine of new tables, for example InnoDB or RocksDB. Default: the server's default.
	Engine string
	// Margin is how long a transaction that publishes may stay open, with the skew of clocks. Messages of a
	// longer one are found by a sweep: late, and perhaps after later messages of their keys. Default 10 s.
	Margin time.Duration
	// Sweep is how often a reader looks for messages that committed later than the margin. Default 15 s.
	Sweep time.Duration
	// LookAgain is how soon a claim finds a job that committed late, behind jobs that were claimed. Each such look
	// reads rows that were deleted within the margin, one by one in RocksDB. Default 2.5 s. A queue that finds
	// no jobs looks ten times as often.
	LookAgain time.Duration
}

// Store is a driver.Store. Safe for concurrent use.
type Store struct {
	db         *sql.DB
	ddl        *sql.DB // for functions that are defined while a transaction has one of db's connections: it never waits for another of these
	opts       Options
	guard      schema.Guard
	retries    retry.Counter
	attempts   tables.Attempts
	beside     sync.Map // by the id of a queue: whether its claims can run side by side
	priorities sync.Map // by the id of a queue: those of which this process has found rows, as bits
	keyed      sync.Map // by the id of a queue, if this process has found jobs with keys
	*outboxes
	*queues
	*inboxes
}

var _ driver.Store = (*Store)(nil)

//go:embed schema.sql sql/*.sql
var files embed.FS

// statements by name, as they are in sql/, without their comments.
var statements = func() map[string]string {
	all := map[string]string{}
	entries, _ := files.ReadDir("sql")
	for _, e := range entries {
		all[strings.TrimSuffix(e.Name(), ".sql")] = uncommented("sql/" + e.Name())
	}
	return all
}()

func uncommented(name string) string {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // embedded: missing only if the program was built wrong
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "--") {
			b.WriteString(line)
		}
	}
	return strings.TrimSpace(b.String())
}

// Open prepares a store: mysql://user:password@host:port/. It does not connect. If the database is down, the first
// call returns an error, and later calls work once it is up.
func Open(url string, opts Options) (*Store, error) {
	opts.Schema = cmp.Or(opts.Schema, DefaultSchema)
	opts.Margin = cmp.Or(opts.Margin, 10*time.Second)
	opts.Sweep = cmp.Or(opts.Sweep, 15*time.Second)
	opts.LookAgain = cmp.Or(opts.LookAgain, 2500*time.Millisecond)
	c, err := connectorOf(url)
	if err != nil {
		return nil, err
	}
	opts.Engine = cmp.Or(opts.Engine, c.engine)
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	db.SetConnMaxIdleTime(5 * time.Minute)
	ddl := sql.OpenDB(c)
	ddl.SetMaxIdleConns(0)
	s := &Store{db: db, ddl: ddl, opts: opts}
	s.guard = schema.Guard{Of: s.of, Version: s.SchemaVersion, Lacks: s.lacks, Unlike: unlike}
	s.outboxes, s.queues, s.inboxes = tables.NewOutboxes(onTables{s}), tables.NewQueues(onTables{s}, &s.retries, &s.attempts), tables.NewInboxes(onTables{s})
	return s, nil
}

// Close closes the connections. Close each Source before it.
func (s *Store) Close() error {
	if s.guard.Closed.Swap(true) {
		return nil
	}
	return errors.Join(s.db.Close(), s.ddl.Close())
}

// Engine returns the engine of new tables, or "" for the server's default.
func (s *Store) Engine() string { return s.opts.Engine }

// Schema returns the name of the database with the tables.
func (s *Store) Schema() string { return s.opts.Schema }

// Retries returns how often transactions ran again because the database asked for it, by reason. "unknown" counts how often
// the store looked up whether one had committed.
func (s *Store) Retries() map[string]int64 { return s.retries.Counts() }

// tableOf is the table with an outbox's messages, quoted.
func tableOf(schema, outbox string) string {
	return quoted(schema) + "." + quoted(tableName("outbox", outbox))
}

// tableName is outbox_NAME or queue_NAME. A character that MySQL does not accept in the name of a table is written as a percent sign and the character's number in base 36.
// These are white space at the end and characters outside the basic plane. So are the percent sign, the brace with which a word begins (words), and the question mark, which is
// an argument.
func tableName(kind, name string) string {
	b := []byte(kind + "_")
	for i, r := range name {
		if r > 0xffff || r == '%' || r == '{' || r == '?' || strings.TrimRight(name[i:], " \t\n\v\f\r") == "" {
			b = append(strconv.AppendInt(append(b, '%'), int64(r), 36), ';')
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return string(b)
}

// unique is a part of the names of a table's checks. MySQL requires these to differ within a database, regardless of case, and to be short.
func unique(table string) tables.SQL {
	sum := sha256.Sum256([]byte(table))
	return tables.SQL(hex.EncodeToString(sum[:8]))
}

func quoted(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// list writes numbers for in (…): of none it is one that no row has.
func list(seqs []int64) string {
	if len(seqs) == 0 {
		return "-1"
	}
	b := make([]byte, 0, 12*len(seqs))
	for i, seq := range seqs {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Append(b, seq)
	}
	return string(b)
}

// these is a table d of numbers: a join with it looks each of them up.
func these(seqs []int64) string {
	return "json_table('[" + list(seqs) + "]', '$[*]' columns (seq bigint path '$')) d"
}

// texts writes placeholders for in (…), and their arguments: of none it is null, which no row has.
func texts(of []string) (placeholders string, args []any) {
	if len(of) == 0 {
		return "null", nil
	}
	for _, t := range of {
		args = append(args, []byte(t))
	}
	return strings.Repeat("?,", len(of)-1) + "?", args
}

// lastTime is the last that a datetime holds. The place of an adopted table's number may be behind it.
var lastTime = time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)

// at writes a time of the database's clock.
func at(t time.Time) string {
	if t.Before(time.Unix(0, 0)) {
		t = time.Unix(0, 0)
	}
	if t.After(lastTime) {
		t = lastTime
	}
	return "'" + t.UTC().Format("2006-01-02 15:04:05.000000") + "'"
}
