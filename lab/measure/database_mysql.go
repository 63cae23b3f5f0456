package measure

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/retry"
	"github.com/penstock/penstock/internal/test/rocksdb"
	"github.com/penstock/penstock/store/mysql"
)

// mysql is the store where the database is MariaDB or MySQL, else nil.
func (d Setup) mysql() *mysql.Store {
	s, _ := d.Store.(*mysql.Store)
	return s
}

// calls are RocksDB's so far, or those that the simulator of YugabyteDB counts; of any other storage there are none.
func (d Setup) calls(ctx context.Context) (rocksdb.Calls, error) {
	if d.Simulator != nil {
		n := d.Simulator.Counts()
		return rocksdb.Calls{Next: n.Nexts, Seek: n.Seeks}, nil
	}
	if d.mysql() == nil {
		return rocksdb.Calls{}, nil
	}
	db, err := mysql.Connect(d.URL)
	if err != nil {
		return rocksdb.Calls{}, err
	}
	defer db.Close()
	return rocksdb.Read(ctx, db)
}

// CallsPerJob are RocksDB's calls for each job or row that was taken, those of the sessions that add them included.
type CallsPerJob struct {
	Next    float64 `json:"next"`
	Seek    float64 `json:"seek"`
	Skipped float64 `json:"skipped"` // steps over what is deleted or older, which a next or a seek makes
}

// Steps from one place in the storage to the next one.
func (c CallsPerJob) Steps() float64 { return c.Next + c.Skipped }

// perJob is nil where there is no RocksDB.
func perJob(c rocksdb.Calls, jobs int64) *CallsPerJob {
	if c == (rocksdb.Calls{}) || jobs <= 0 {
		return nil
	}
	n := float64(jobs)
	return &CallsPerJob{Next: float64(c.Next) / n, Seek: float64(c.Seek) / n, Skipped: float64(c.Skipped) / n}
}

func quotedMySQL(names ...string) string {
	for i, name := range names {
		names[i] = "`" + strings.ReplaceAll(name, "`", "``") + "`"
	}
	return strings.Join(names, ".")
}

// mysqlWords are what words are in PostgreSQL.
func (d Setup) mysqlWords(table string) map[string]string {
	engine := ""
	if e := d.mysql().Engine(); e != "" {
		engine = "engine = " + quotedMySQL(e)
	}
	return map[string]string{
		"schema": quotedMySQL(d.Schema), "schema_name": literal(d.Schema), "table": quotedMySQL(table), "name": literal(table), "engine": engine,
	}
}

// jobQueueMySQL is the published table with the published transaction.
func jobQueueMySQL(c contender) contender {
	c.one = func(s *session) (id int64, ok bool, err error) {
		if err := s.value("select", c.sql["select"], &id); errors.Is(err, sql.ErrNoRows) || retry.Of(err) != retry.None {
			return 0, false, nil // MyRocks may wait for a lock that it is to skip
		} else if err != nil {
			return 0, false, err
		}
		return id, true, s.do("delete", c.sql["delete"], id)
	}
	c.prepared = nil
	c.cold = true
	return c
}

// byHandMySQL is the published loop.
func (c *churner) byHandMySQL(margin time.Duration) error {
	low := time.Unix(0, 0).UTC()
	c.consume = func() (n int, err error) {
		rows, err := c.session.my.conn.QueryContext(c.session.ctx, c.sql["consume"], low)
		if err != nil {
			return 0, c.session.explain("consume", err)
		}
		defer rows.Close()
		newest := time.Unix(0, 0).UTC()
		for ; rows.Next(); n++ {
			var ts time.Time
			if err := rows.Scan(&ts); err != nil {
				return 0, err
			}
			if ts.After(newest) {
				newest = ts
			}
		}
		low = newest.Add(-margin)
		return n, rows.Err()
	}
	return nil
}

// mysqlSession is a connection to MySQL.
type mysqlSession struct {
	db   *sql.DB
	conn *sql.Conn
	stmt map[string]*sql.Stmt
}

func (d Setup) connectMySQL(ctx context.Context) (*session, error) {
	db, err := mysql.Connect(d.URL)
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return &session{my: &mysqlSession{db: db, conn: conn, stmt: map[string]*sql.Stmt{}}, ctx: ctx}, nil
}

func (m *mysqlSession) close() { _, _ = m.conn.Close(), m.db.Close() }

func (m *mysqlSession) prepare(ctx context.Context, name, text string) (err error) {
	m.stmt[name], err = m.conn.PrepareContext(ctx, text)
	return err
}

// run executes what was prepared; its rows are not wanted.
func (m *mysqlSession) run(ctx context.Context, name string, params [][]byte) error {
	args := make([]any, len(params))
	for i, p := range params {
		args[i] = p
	}
	_, err := m.stmt[name].ExecContext(ctx, args...)
	return err
}
