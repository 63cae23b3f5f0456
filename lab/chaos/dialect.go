package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/penstock/penstock/store/mysql"
	"github.com/penstock/penstock/store/sqlite"
)

// The stores.
const (
	storePostgres = "postgres"
	storeMySQL    = "mysql"
	storeSQLite   = "sqlite"
	storeCitus    = "citus"
)

// portable is the profile on plain tables.
const portable = "portable"

//go:embed setup.sql
var setupSQL string

// dialect is what the databases differ in: for producers, the business's tables and the transactions that are held open. Its
// statements have ? for parameters and `key` for the column.
type dialect struct {
	open          func(url string) (*sql.DB, error)
	asProducer    func(url string) (string, error) // a URL whose sessions are known to be producers'
	before, after []string                         // around setup.sql
	business      string                           // before the names of the business's tables
	options       string                           // of these
	outbox, queue string                           // tables
	writing       string                           // how many sessions producers have; empty: they are in this process
	mark          string                           // makes the transaction one that writes
	pin, hold     []string                         // begin a transaction that reads, and one that writes
	function      string                           // publishes a message now and then; may be empty
	enqueue       string                           // a job
	barrier, seal string                           // make and seal a barrier; empty where jobs have none, and where they are inserted
	milliseconds  bool                             // the queue has times as numbers
	dollars       bool                             // parameters are $1 and so on
	tenants       int                              // of a distributed outbox; 0: it is not
	joint         string                           // has a transaction with a job prepared on several servers
}

const insertJob = "insert into {queue} (group_key, `key`, priority, not_before, headers, payload) values (?, ?, ?, ?, ?, ?)"

func dialectOf(cfg config) dialect {
	switch cfg.store {
	case storeMySQL:
		return dialect{
			open: mysql.Connect, business: "business.", options: "engine = " + cfg.engine, outbox: "penstock.outbox_shop", queue: "penstock.queue_tasks",
			asProducer: func(database string) (string, error) {
				u, err := url.Parse(database)
				if err != nil {
					return "", err
				}
				u.User = url.User("producer")
				return u.String(), nil
			},
			before: []string{"create database business"}, after: []string{"create user producer@'%'", "grant all on *.* to producer@'%'"},
			writing: "select count(*) from information_schema.processlist where user = 'producer'", mark: "insert into business.unrelated values (current_timestamp)",
			pin:     []string{"set session transaction isolation level repeatable read", "start transaction with consistent snapshot"},
			hold:    []string{"begin"},
			enqueue: insertJob,
		}
	case storeSQLite:
		return dialect{
			open:   func(database string) (*sql.DB, error) { return sqlite.OpenDB(strings.TrimPrefix(database, "sqlite:")) },
			outbox: "penstock_outbox_shop", queue: "penstock_queue_tasks", mark: "insert into unrelated values (current_timestamp)",
			pin: []string{"begin"}, hold: []string{"begin immediate"}, enqueue: insertJob, milliseconds: true,
		}
	}
	if cfg.store == storeCitus {
		return citusDialect()
	}
	return postgresDialect(cfg.profile)
}

func postgresDialect(profile string) dialect {
	d := dialect{
		open: func(url string) (*sql.DB, error) { return sql.Open("pgx", url) },
		asProducer: func(database string) (string, error) {
			return database + "&application_name=chaos-producer&connect_timeout=3", nil
		},
		business: "business.", options: "with (fillfactor = 50)", before: []string{"create schema business"},
		writing: "select count(*) from pg_stat_activity where application_name = 'chaos-producer'", mark: "select pg_current_xact_id()",
		pin: []string{"begin isolation level repeatable read"}, hold: []string{"begin"}, dollars: true,
	}
	if profile == portable { // numbers in blocks that each session has for itself
		d.outbox, d.queue, d.enqueue = "penstock_portable.outbox_shop", "penstock_portable.queue_tasks", insertJob
		d.after = []string{"alter table penstock_portable.outbox_shop alter column seq set cache 100"}
		return d
	}
	d.outbox, d.function = "penstock.shop", "select penstock.publish_bytes('shop', $5, $2, $3, $4::jsonb, $1)"
	d.enqueue = "select penstock.enqueue_bytes('tasks', $6, $2, $1, $3, $4, headers => $5::jsonb)"
	d.barrier, d.seal = "select penstock.barrier('tasks')", "select penstock.seal('tasks', ?)"
	d.before = append(d.before, "select penstock.create_outbox('shop', 8, 524288)") // a small ring
	return d
}

// sql is a statement in the dialect.
func (d dialect) sql(statement string) string {
	statement = strings.NewReplacer("{business}", d.business, "{options}", d.options, "{outbox}", d.outbox, "{queue}", d.queue,
		"{tenant}", d.distributed("tenant varchar(64) not null, ", ""), "{by}", d.distributed("tenant, ", "")).Replace(statement)
	if !d.dollars {
		return statement
	}
	parts := strings.Split(strings.ReplaceAll(statement, "`", `"`), "?")
	for i := range parts[1:] {
		parts[i] += fmt.Sprintf("$%d", i+1)
	}
	return strings.Join(parts, "")
}

func (d dialect) with(url string, fn func(*sql.DB) error) error {
	db, err := d.open(url)
	if err != nil {
		return err
	}
	defer db.Close()
	return fn(db)
}

// setUp makes the business's tables.
func (d dialect) setUp(ctx context.Context, url string) error {
	return d.with(url, func(db *sql.DB) error {
		statements := append(append(append([]string{}, d.before...), strings.Split(setupSQL, ";\n")...), d.after...)
		for _, key := range slices.Concat(quickKeys, lateKeys, replacedKeys) {
			if d.tenants > 0 {
				statements = append(statements, fmt.Sprintf("insert into {business}account (tenant, `key`) values ('%s', '%s')", d.tenantOf(key), key))
				continue
			}
			statements = append(statements, fmt.Sprintf("insert into {business}account (`key`) values ('%s')", key))
		}
		for _, statement := range statements {
			if _, err := db.ExecContext(ctx, d.sql(statement)); err != nil {
				return fmt.Errorf("%s: %w", d.sql(statement), err)
			}
		}
		return nil
	})
}

// facts reads the business table, once no producer writes to it any more.
func (d dialect) facts(ctx context.Context, url string) (map[string]message, error) {
	facts := map[string]message{}
	return facts, d.with(url, func(db *sql.DB) error {
		for writing := 1; writing > 0 && d.writing != ""; sleep(ctx, 50*time.Millisecond) {
			if err := db.QueryRowContext(ctx, d.writing).Scan(&writing); err != nil || ctx.Err() != nil {
				return errors.Join(err, ctx.Err())
			}
		}
		rows, err := db.QueryContext(ctx, d.sql("select id, coalesce(`key`, ''), n, topic, own_id, "+d.distributed("tenant", "''")+" from {business}fact"))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var m message
			if err := rows.Scan(&m.ID, &m.Key, &m.N, &m.Topic, &m.OwnID, &m.Tenant); err != nil {
				return err
			}
			facts[m.ID] = m
		}
		return rows.Err()
	})
}

// transaction holds one open: a snapshot that holds back the cleaning, or a writer that has nothing to do with the outbox.
func (r *rig) transaction(name string, b blast, statements ...string) fault {
	return fault{name, name, b, 2, func(ctx context.Context, random *rand.Rand, _ func()) (happened bool, err error) {
		err = r.with(r.database, func(db *sql.DB) error {
			conn, err := db.Conn(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			for _, statement := range statements {
				if _, err := conn.ExecContext(ctx, r.sql(statement)); err != nil {
					return err
				}
			}
			happened = true
			if r.store == storeSQLite { // whose one writer keeps all others waiting
				sleep(ctx, between(random, lease/4, 2*lease))
			} else {
				sleep(ctx, between(random, lease, 5*lease))
			}
			_, err = conn.ExecContext(context.WithoutCancel(ctx), "commit")
			return err
		})
		if err != nil { // the server was killed meanwhile, or just now
			r.chronicle.printf("%s ended early: %v", name, err)
		}
		return happened, nil
	}}
}

// producerConn is a producer's connection, with one transaction after the other.
type producerConn struct {
	dialect
	db *sql.DB
	tx *sql.Tx
}

func (d dialect) connect(url string) (*producerConn, error) {
	db, err := d.open(url)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return &producerConn{dialect: d, db: db}, nil
}

func (c *producerConn) begin(ctx context.Context) (err error) {
	c.tx, err = c.db.BeginTx(ctx, nil)
	return err
}

func (c *producerConn) exec(ctx context.Context, statement string, args ...any) error {
	_, err := c.tx.ExecContext(ctx, c.sql(statement), args...)
	return err
}

// count counts a message of the key, which is locked from then on.
func (c *producerConn) count(ctx context.Context, m message) (n int64, err error) {
	which, args := " where `key` = ?", []any{m.Key}
	if c.tenants > 0 {
		which, args = which+" and tenant = ?", append(args, m.Tenant)
	}
	if err := c.exec(ctx, "update {business}account set n = n + 1"+which, args...); err != nil {
		return 0, err
	}
	return n, c.tx.QueryRowContext(ctx, c.sql("select n from {business}account"+which), args...).Scan(&n)
}

// ties has jobs without a key wait for the last one of their transaction that has one. They come first in it. In a crowd the first job waits for
// all others.
func (c *producerConn) ties(ctx context.Context, messages []message) (ties []tie, seal func() error, err error) {
	ties, seal = make([]tie, len(messages)), func() error { return nil }
	var waiters, holders []int
	var after []string
	for i, m := range messages {
		switch {
		case !m.hasJob() || m.replaced():
		case m.Key == "" && (i == 0 || len(messages) <= crowd):
			waiters = append(waiters, i)
		case len(messages) <= crowd:
			holders, after = []int{i}, []string{m.ID}
		default:
			holders, after = append(holders, i), append(after, m.ID)
		}
	}
	if c.barrier == "" || len(waiters) == 0 || len(holders) == 0 {
		return ties, seal, nil
	}
	var barrier int64
	if err := c.tx.QueryRowContext(ctx, c.barrier).Scan(&barrier); err != nil {
		return nil, nil, err
	}
	for _, i := range holders {
		ties[i].header = fmt.Sprintf(`, "penstock-holds": "%d"`, barrier)
	}
	for _, i := range waiters {
		ties[i] = tie{fmt.Sprintf(`, "penstock-waits-for": "%d", "penstock-on-dead": "run"`, barrier), after}
	}
	return ties, func() error { return c.exec(ctx, c.seal, barrier) }, nil
}

// write writes the business row, the message, and its job if it has one.
func (c *producerConn) write(ctx context.Context, m message, t tie, payload []byte, random *rand.Rand) error {
	key, id := sql.NullString{String: m.Key, Valid: m.Key != ""}, sql.NullString{String: m.ID, Valid: m.OwnID}
	headers := fmt.Sprintf(`{"trace": %q}`, m.ID)
	fact, publish, values := "insert into {business}fact (id, `key`, n, topic, own_id", "insert into {outbox} (id, `key`, topic, headers, payload", []any{id, key, m.Topic, headers, payload}
	facts := []any{m.ID, key, m.N, m.Topic, m.OwnID}
	if c.tenants > 0 {
		fact, publish, facts, values = fact+", tenant", publish+", tenant", append(facts, m.Tenant), append(values, m.Tenant)
	}
	if err := c.exec(ctx, fact+") values (?"+strings.Repeat(", ?", len(facts)-1)+")", facts...); err != nil {
		return err
	}
	publish += ") values (?" + strings.Repeat(", ?", len(values)-1) + ")"
	if c.function != "" && random.IntN(5) == 0 {
		publish = c.function
	}
	if err := c.exec(ctx, publish, values...); err != nil || !m.hasJob() {
		return err
	}
	if c.joint != "" {
		if err := c.exec(ctx, c.joint); err != nil {
			return err
		}
	}
	var notBefore any
	if at := m.notBefore(t); at != nil && c.milliseconds {
		notBefore = at.UnixMilli()
	} else if at != nil {
		notBefore = *at
	}
	enqueue := func(payload []byte) error {
		return c.exec(ctx, c.enqueue, m.group(), key, m.priority(), notBefore, fmt.Sprintf(`{"trace": %q%s}`, m.ID, t.header), payload)
	}
	if m.replaced() {
		t.header = fmt.Sprintf(`, "penstock-unique-key": %q, "penstock-on-conflict": %q`, m.Key, m.onConflict())
		if m.onConflict() == "debounce" {
			t.header += `, "penstock-debounce-max": "3"`
		}
	}
	if c.barrier == "" || m.Key != "" || m.fate(4) != 0 {
		return enqueue(payload)
	}
	// Twice, of which one is never to run: it is replaced, or the second one is ignored.
	first, second := []byte(fmt.Sprintf(`{"ID": "of the twin of %s"}`, m.ID)), payload
	how := []string{"ignore", "replace", "debounce"}[m.fate(12)/4]
	if t.header != "" {
		how = "ignore" // a barrier counts the first one
	}
	if how == "ignore" {
		first, second = second, first
	}
	t.header += fmt.Sprintf(`, "penstock-unique-key": %q, "penstock-on-conflict": %q`, m.ID, how)
	if err := enqueue(first); err != nil {
		return err
	}
	return enqueue(second)
}
