package wire

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Yugabyte is a simulator of YugabyteDB: a proxy in front of PostgreSQL 15 or later. It follows YugabyteDB's documentation and
// issues, as far as an outbox or a queue meets them. Each figure that is measured with it is a simulator's. It has
//
//   - flushes: a statement that writes or locks rows waits for one Raft flush, or for one of each 3,072 rows, and a transaction that has
//     written for one at its commit; with ON CONFLICT or a row trigger it is one flush a row. Locks are held meanwhile. Nothing is on the
//     fast path of single rows. (https://docs.yugabyte.com/stable/architecture/transactions/transactional-io-path/,
//     https://dev.to/yugabyte/write-buffering-to-reduce-raft-consensus-latency-in-yugabytedb-2j0b)
//   - steps: each entry of an index that a statement reads takes a while, deleted ones too. PostgreSQL counts them, and has them for as
//     long as a snapshot is held, as YugabyteDB has its tombstones for timestamp_history_retention_interval_sec. A scan of an index is a
//     seek, an entry is a next (https://docs.yugabyte.com/stable/launch-and-manage/monitor-and-alert/metrics/cache-storage/)
//   - sequences that give each session blocks of 100 (ysql_sequence_cache_minval,
//     https://docs.yugabyte.com/stable/api/ysql/the-sql-language/statements/ddl_create_sequence/)
//   - SERIALIZABLE, which has no SKIP LOCKED (https://github.com/yugabyte/yugabyte-db/issues/11761)
//   - the words of its DDL: HASH, ASC and DESC in a primary key, and SPLIT INTO (PostgreSQL does without)
//   - what the portable profile does without is refused: system columns (https://github.com/yugabyte/yugabyte-db/issues/24843), and what shim.sql says
//   - nodes: a session belongs to one, and all of a node's can be killed. The transactions of a killed node keep their locks until they
//     expire (https://docs.yugabyte.com/stable/explore/fault-tolerance/transaction-availability/)
//
// Its errors that ask for another try are those of Refuse.
type Yugabyte struct {
	Proxy
	Flush, Step  time.Duration       // what a Raft flush and a step take
	Serializable bool                // sessions begin with it
	Expiry       time.Duration       // how long the locks of a killed node's sessions stay
	Sleep        func(time.Duration) // time.Sleep unless a test counts

	URL string // of the simulator

	off        atomic.Bool
	mu         sync.Mutex
	counts     Counts
	accepted   int
	nodes      [3]map[*ybSession]bool
	triggers   []string // tables with a row trigger
	statements sync.Map // by text: *ybStatement
}

// Counts are of what YugabyteDB's EXPLAIN (ANALYZE, DIST) and its metrics count.
type Counts struct {
	Statements int64 `json:"statements"`
	Writes     int64 `json:"write_requests"` // rows written
	Flushes    int64 `json:"flush_requests"`
	Seeks      int64 `json:"seeks"`
	Nexts      int64 `json:"nexts"`
}

// Since returns c minus before.
func (c Counts) Since(before Counts) Counts {
	return Counts{c.Statements - before.Statements, c.Writes - before.Writes, c.Flushes - before.Flushes, c.Seeks - before.Seeks, c.Nexts - before.Nexts}
}

// Published figures: 10 ms is of three regions near each other; 500,001 seeks took 2,017 ms
// (https://www.yugabyte.com/blog/the-curious-case-of-the-ever-increasing-tombstones/).
const (
	ybFlush  = 10 * time.Millisecond
	ybStep   = 4 * time.Microsecond
	ybBuffer = 3072 // rows, ysql_session_max_batch_size
	ybExpiry = 5 * time.Second
)

// YugabyteVersion is what version() says.
const YugabyteVersion = "PostgreSQL 15.12-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu (simulator)"

// Shim has the functions that YugabyteDB lacks, so that they fail, in the schema shim.
//
//go:embed shim.sql
var Shim string

// NewYugabyte starts a simulator before a database, which gets the shim. URL leads there. end stops new connections.
func NewYugabyte(ctx context.Context, direct string) (y *Yugabyte, end func(), err error) {
	u, err := url.Parse(direct)
	if err != nil {
		return nil, nil, err
	}
	conn, err := pgx.Connect(ctx, direct)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, Shim+"\ncreate or replace function shim.version() returns text language sql as $$ select '"+YugabyteVersion+"'::text $$;"); err != nil {
		return nil, nil, fmt.Errorf("making the shim: %w", err)
	}
	y = &Yugabyte{Flush: ybFlush, Step: ybStep, Expiry: ybExpiry, Sleep: time.Sleep}
	y.let, y.done = make(chan struct{}), make(chan struct{})
	for i := range y.nodes {
		y.nodes[i] = map[*ybSession]bool{}
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "5432")
	}
	if u.Host, end, err = y.listen(host, y.serve); err != nil {
		return nil, nil, err
	}
	q := u.Query()
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	y.URL = u.String()
	return y, end, nil
}

// Off has nothing take time or count, while a benchmark prepares.
func (y *Yugabyte) Off(off bool) { y.off.Store(off) }

// Counts are the sums of all sessions.
func (y *Yugabyte) Counts() Counts {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.counts
}

// KillNode ends all sessions of one of three nodes, as the death of its process does.
func (y *Yugabyte) KillNode(n int) (sessions int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for s := range y.nodes[n] {
		_ = s.conn.Close()
		sessions++
	}
	clear(y.nodes[n])
	return sessions
}

// refusals are errors after which the statement has not happened and must run again, in turns.
var refusals = []pgproto3.ErrorResponse{
	{Code: "40001", Message: "Restart read required at: { read: { physical: 1586581117344246 logical: 12 } local_limit: { physical: 1586581117344563 logical: 6 } global_limit: <min> in_txn_limit: <max> serial_no: 0 }"},            // https://github.com/yugabyte/yugabyte-db/issues/4205
	{Code: "40001", Message: "could not serialize access due to concurrent update", Detail: "Conflicts with higher priority transaction (query layer retry isn't possible because this is not the first command in the transaction)"}, // https://docs.yugabyte.com/stable/architecture/transactions/concurrency-control/
	{Code: "40001", Message: "Operation expired: Heartbeat: Transaction 13fb5a0a-012d-4821-ae1d-5f7780636dd4 expired or aborted by a conflict: 40001"},                                                                                // the same page
	{Code: "40001", Message: "The catalog snapshot used for this transaction has been invalidated: expected: 2, got: 1: MISMATCHED_SCHEMA"},                                                                                           // https://github.com/yugabyte/yugabyte-db/issues/28008
	{Code: "40P01", Message: "Transaction 00da00cd-87fa-431b-9521-253582fb23fe was aborted while waiting for locks"},                                                                                                                  // the page of concurrency control
}

// refusal is the answer to a trip that is refused, in a session of the given status.
func (p *Proxy) refusal(status byte) []byte {
	r := refusals[int(p.counts[Refuse].Load())%len(refusals)]
	return answered(r, status)
}

func answered(r pgproto3.ErrorResponse, status byte) []byte {
	if status == 'T' {
		status = 'E'
	}
	r.Severity = "ERROR"
	answer, _ := r.Encode(nil)
	answer, _ = (&pgproto3.ReadyForQuery{TxStatus: status}).Encode(answer)
	return answer
}

// ybStatement is what matters of a statement's text.
type ybStatement struct {
	text              string // as PostgreSQL takes it
	begins, ends      bool
	writes, rowByRow  bool
	into              string // the table that it writes to
	refused, triggers string // a system column; the table that gets a row trigger
}

var (
	ybComment  = regexp.MustCompile(`--[^\n]*`)
	ybWrites   = regexp.MustCompile(`\b(insert\s+into|delete\s+from|merge\s+into|update\s+\S+\s+(as\s+)?(\w+\s+)?set|for\s+(no\s+key\s+)?update|for\s+(key\s+)?share)\b`)
	ybInto     = regexp.MustCompile(`\b(?:insert\s+into|update)\s+([\w".]+)`)
	ybTrigger  = regexp.MustCompile(`\bcreate\s+trigger\s.*\son\s+([\w".]+)\s+for\s+each\s+row\b`)
	ybSystem   = regexp.MustCompile(`\b(xmin|xmax|cmin|cmax|ctid)\b`)
	ybSplit    = regexp.MustCompile(`(?i)\s+split\s+into\s+\d+\s+tablets`)
	ybHash     = regexp.MustCompile(`(?i)\s+hash\s*([,)])`)
	ybKey      = regexp.MustCompile(`(?i)primary\s+key\s*\([^)]*\)`)
	ybOrder    = regexp.MustCompile(`(?i)\s+(asc|desc)\b`)
	ybSkip     = regexp.MustCompile(`(?i)\s+skip\s+locked\b`)
	ybCreates  = regexp.MustCompile(`(?i)^\s*create\s`)
	ybBegin    = regexp.MustCompile(`^\s*(begin|start\s+transaction)\b`)
	ybEnd      = regexp.MustCompile(`^\s*(commit|end)\b`)
	ybRowByRow = regexp.MustCompile(`\bon\s+conflict\b`)
)

func (y *Yugabyte) statement(text string) *ybStatement {
	if s, ok := y.statements.Load(text); ok {
		return s.(*ybStatement)
	}
	said := strings.ToLower(ybComment.ReplaceAllString(text, ""))
	s := &ybStatement{text: text, begins: ybBegin.MatchString(said), ends: ybEnd.MatchString(said), writes: ybWrites.MatchString(said), rowByRow: ybRowByRow.MatchString(said),
		refused: ybSystem.FindString(said)}
	if ybCreates.MatchString(text) {
		s.writes = false
		s.text = ybHash.ReplaceAllString(ybSplit.ReplaceAllString(text, ""), "$1")
		s.text = ybKey.ReplaceAllStringFunc(s.text, func(key string) string { return ybOrder.ReplaceAllString(key, "") })
	}
	if y.Serializable {
		s.text = ybSkip.ReplaceAllString(s.text, "")
	}
	if m := ybTrigger.FindStringSubmatch(said); m != nil {
		s.triggers = m[1]
	}
	if m := ybInto.FindStringSubmatch(said); m != nil {
		s.into = m[1]
	}
	y.statements.Store(text, s)
	return s
}

// flushes of a statement that has been completed with that tag.
func (y *Yugabyte) flushes(s *ybStatement, tag string) int64 {
	rows, err := strconv.ParseInt(tag[strings.LastIndexByte(tag, ' ')+1:], 10, 64)
	if !s.writes || err != nil || rows == 0 {
		return 0
	}
	byRow := s.rowByRow
	y.mu.Lock()
	for _, table := range y.triggers {
		byRow = byRow || table == s.into
	}
	y.mu.Unlock()
	if byRow {
		return rows
	}
	return (rows + ybBuffer - 1) / ybBuffer
}

// ybSession is one client's.
type ybSession struct {
	*Yugabyte
	conn           net.Conn // the client
	client, server net.Conn
	status         byte // of the transaction
	wrote          bool // in it
	named, portals map[string]*ybStatement
	read           Counts // of the transaction, until now
}

// counted asks for what PostgreSQL has counted in this transaction. Once that ends, the counts begin again.
const counted = `select coalesce(sum(pg_stat_get_xact_numscans(oid)) filter (where relkind = 'i'), 0)::text,
       coalesce(sum(pg_stat_get_xact_tuples_returned(oid)), 0)::text,
       coalesce(sum(pg_stat_get_xact_tuples_inserted(oid) + pg_stat_get_xact_tuples_updated(oid) + pg_stat_get_xact_tuples_deleted(oid)) filter (where relkind = 'r'), 0)::text,
       pg_stat_force_next_flush()::text
  from pg_catalog.pg_class
 where relkind in ('r', 'i') and oid >= 16384 and relpersistence = 'p'`

const countedName = "simulator counted"

func (y *Yugabyte) serve(client, server net.Conn) {
	s := &ybSession{Yugabyte: y, conn: client, client: client, server: server, named: map[string]*ybStatement{}, portals: map[string]*ybStatement{}}
	y.mu.Lock()
	node := y.nodes[y.accepted%len(y.nodes)]
	node[s] = true
	y.accepted++
	y.mu.Unlock()
	_ = s.run()
	y.mu.Lock()
	killed := !node[s]
	delete(node, s)
	y.mu.Unlock()
	if killed && (s.status == 'T' || s.status == 'E') {
		y.Sleep(y.Expiry) // serve's caller ends the server's session
	}
}

// startup passes the first messages on, with the shim in the search path.
func (s *ybSession) startup() error {
	_, raw, err := message(s.client, false)
	if err != nil {
		return err
	}
	switch binary.BigEndian.Uint32(raw[4:]) {
	case 80877103, 80877104: // TLS, GSSAPI
		if _, err := s.client.Write([]byte("N")); err != nil {
			return err
		}
		return s.startup()
	case 80877102: // a cancellation
		_, err := s.server.Write(raw)
		_, _ = io.Copy(io.Discard, s.server)
		return errFinished(err)
	}
	var m pgproto3.StartupMessage
	if err := m.Decode(raw[4:]); err != nil {
		return err
	}
	m.Parameters["search_path"] = `shim, pg_catalog, "$user", public`
	if s.Serializable {
		m.Parameters["default_transaction_isolation"] = "serializable"
	}
	raw, err = m.Encode(nil)
	if err != nil {
		return err
	}
	if _, err := s.server.Write(raw); err != nil {
		return err
	}
	return s.answers(func(kind byte, raw []byte) (pass, done bool, err error) {
		if kind == 'R' {
			switch binary.BigEndian.Uint32(raw[5:]) {
			case 3, 5, 10, 11: // it asks for the password, or more of it
				if _, err := s.client.Write(raw); err != nil {
					return false, true, err
				}
				_, raw, err := message(s.client, true)
				if err != nil {
					return false, true, err
				}
				_, err = s.server.Write(raw)
				return false, false, err
			}
		}
		return true, kind == 'Z', nil
	})
}

func errFinished(err error) error {
	if err == nil {
		return io.EOF
	}
	return err
}

// answers reads what the server says until done, and passes it on.
func (s *ybSession) answers(each func(kind byte, raw []byte) (pass, done bool, err error)) error {
	for {
		kind, raw, err := message(s.server, true)
		if err != nil {
			return err
		}
		if kind == 'Z' {
			s.status = raw[5]
			if s.status == 'I' {
				s.wrote, s.read = false, Counts{}
			}
		}
		pass, done, err := each(kind, raw)
		if err != nil {
			return err
		}
		if pass {
			if _, err := s.client.Write(raw); err != nil {
				return err
			}
		}
		if done {
			return nil
		}
	}
}

// send writes without waiting: the server may not read on before its answers are read.
func (s *ybSession) send(raw []byte) { go func() { _, _ = s.server.Write(raw) }() }

func (s *ybSession) run() error {
	if err := s.startup(); err != nil {
		return err
	}
	raw, _ := (&pgproto3.Parse{Name: countedName, Query: counted}).Encode(nil)
	raw, _ = (&pgproto3.Sync{}).Encode(raw)
	s.send(raw)
	if err := s.answers(func(kind byte, _ []byte) (pass, done bool, err error) { return false, kind == 'Z', nil }); err != nil {
		return err
	}
	for {
		if err := s.trip(); err != nil {
			return err
		}
	}
}

// trip is one round trip of the client's: what it sends until a Sync, or a simple query.
func (s *ybSession) trip() error {
	var out, all []byte
	var executed []*ybStatement
	refused := ""
	note := func(st *ybStatement) {
		executed = append(executed, st)
		refused = cmp.Or(refused, st.refused)
	}
	for {
		kind, raw, err := message(s.client, true)
		if err != nil {
			return err
		}
		all = append(all, raw...)
		switch kind {
		case 'X':
			_, err := s.server.Write(raw)
			return errFinished(err)
		case 'P':
			var m pgproto3.Parse
			if err := m.Decode(raw[5:]); err != nil {
				return err
			}
			st := s.statement(m.Query)
			s.named[m.Name], m.Query = st, st.text
			refused = cmp.Or(refused, st.refused)
			if raw, err = m.Encode(nil); err != nil {
				return err
			}
		case 'B':
			portal, rest, _ := bytes.Cut(raw[5:], []byte{0})
			name, _, _ := bytes.Cut(rest, []byte{0})
			s.portals[string(portal)] = s.named[string(name)]
		case 'E':
			portal, _, _ := bytes.Cut(raw[5:], []byte{0})
			if st := s.portals[string(portal)]; st != nil {
				note(st)
			}
		case 'Q':
			st := s.statement(string(bytes.TrimSuffix(raw[5:], []byte{0})))
			note(st)
			return s.exchange(st.simple(), all, executed, refused, true)
		case 'S':
			return s.exchange(out, all, executed, refused, false)
		}
		out = append(out, raw...)
	}
}

// exchange has the server do a trip, unless a fault is decided.
func (s *ybSession) exchange(trip, said []byte, executed []*ybStatement, refused string, simple bool) error {
	if refused != "" {
		_, err := s.client.Write(answered(pgproto3.ErrorResponse{Code: "0A000", Message: fmt.Sprintf("system column %q is not supported yet", refused)}, s.status))
		return err
	}
	fault := s.next(said)
	switch fault {
	case Refuse:
		_, err := s.client.Write(s.refusal(s.status))
		return err
	case CutBefore:
		return io.EOF
	}
	lose := fault != Pass
	if lose {
		s.client = lost{s.conn}
	}
	do := s.extended
	if simple && several(executed[0].text) {
		do = s.plain
	}
	if err := do(trip, executed, simple); err != nil || lose {
		return errFinished(err)
	}
	return nil
}

// lost is a connection whose answers do not arrive.
type lost struct{ net.Conn }

func (lost) Write(p []byte) (int, error) { return len(p), nil }

// simple is a simple query in the extended protocol, so that it can be waited for before it is committed. Several statements cannot be.
func (st *ybStatement) simple() []byte {
	if several(st.text) {
		raw, _ := (&pgproto3.Query{String: st.text}).Encode(nil)
		return raw
	}
	raw, _ := (&pgproto3.Parse{Query: st.text}).Encode(nil)
	raw, _ = (&pgproto3.Bind{}).Encode(raw)
	raw, _ = (&pgproto3.Describe{ObjectType: 'P'}).Encode(raw)
	raw, _ = (&pgproto3.Execute{}).Encode(raw)
	return raw
}

func several(text string) bool { return strings.Contains(strings.TrimRight(text, "; \n\t"), ";") }

// extended does a trip of the extended protocol. It is not committed before the flushes have been waited for.
func (s *ybSession) extended(trip []byte, executed []*ybStatement, simple bool) error {
	within, failed := s.status, false
	hidden := func(kind byte) bool { return simple && (kind == '1' || kind == '2' || kind == 'n') }
	if len(executed) > 0 && within != 'E' {
		if s.wrote && executed[0].ends {
			s.add(Counts{Flushes: 1})
		}
		trip, _ = (&pgproto3.Bind{PreparedStatement: countedName}).Encode(trip)
		trip, _ = (&pgproto3.Execute{}).Encode(trip)
		trip, _ = (&pgproto3.Flush{}).Encode(trip)
		s.send(trip)
		trip, s.status = nil, 'T'
		completed, flushes := 0, int64(0)
		var read Counts
		err := s.answers(func(kind byte, raw []byte) (pass, done bool, err error) {
			own := completed == len(executed)
			switch kind {
			case 'E':
				failed = true
				return true, true, nil
			case 'D':
				if own {
					read, err = countsOf(raw)
				}
				return !own, false, err
			case 'C', 's', 'I':
				if own {
					return false, true, nil
				}
				if kind == 'C' {
					flushes += s.flushes(executed[completed], string(bytes.TrimSuffix(raw[5:], []byte{0})))
				}
				completed++
			case '2':
				return !own && !hidden(kind), false, nil
			}
			return !hidden(kind), false, nil
		})
		if err != nil {
			return err
		}
		s.done(executed, flushes, within, failed, read)
	}
	trip, _ = (&pgproto3.Sync{}).Encode(trip)
	s.send(trip)
	return s.answers(func(kind byte, _ []byte) (pass, done bool, err error) { return !hidden(kind), kind == 'Z', nil })
}

// plain passes several statements on that are one query, and what they read and write is not counted.
func (s *ybSession) plain(query []byte, _ []*ybStatement, _ bool) error {
	s.send(query)
	return s.answers(func(kind byte, _ []byte) (pass, done bool, err error) { return true, kind == 'Z', nil })
}

// done counts a trip and waits for as long as YugabyteDB would.
func (s *ybSession) done(executed []*ybStatement, flushes int64, within byte, failed bool, read Counts) {
	n := Counts{Statements: int64(len(executed)), Flushes: flushes}
	if !failed && read != (Counts{}) {
		more := read.Since(s.read)
		n.Seeks, n.Nexts, n.Writes = more.Seeks, more.Nexts, more.Writes
		s.read = read
	}
	begins, ends := within != 'I', false // in a transaction that began before or begins here; it ends here
	for _, st := range executed {
		begins, ends = begins || st.begins, ends || st.ends
		if st.triggers != "" && !failed {
			s.mu.Lock()
			s.triggers = append(s.triggers, st.triggers)
			s.mu.Unlock()
		}
	}
	s.wrote = s.wrote || flushes > 0
	if !failed && flushes > 0 && (!begins || ends) {
		n.Flushes++ // the commit's
	}
	s.add(n)
}

func (s *ybSession) add(n Counts) {
	if s.off.Load() {
		return
	}
	s.mu.Lock()
	s.counts = Counts{s.counts.Statements + n.Statements, s.counts.Writes + n.Writes, s.counts.Flushes + n.Flushes, s.counts.Seeks + n.Seeks, s.counts.Nexts + n.Nexts}
	s.mu.Unlock()
	if wait := time.Duration(n.Flushes)*s.Flush + time.Duration(n.Nexts)*s.Step; wait > 0 {
		s.Sleep(wait)
	}
}

// countsOf reads the row of counted.
func countsOf(raw []byte) (c Counts, err error) {
	var row pgproto3.DataRow
	if err := row.Decode(raw[5:]); err != nil {
		return c, err
	}
	for i, into := range []*int64{&c.Seeks, &c.Nexts, &c.Writes} {
		if *into, err = strconv.ParseInt(string(row.Values[i]), 10, 64); err != nil {
			return c, err
		}
	}
	return c, nil
}
