package portable

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/doctor"
)

// plan reads the answer of an EXPLAIN into a statement. A label that an older release does not have leaves 0.
type plan struct {
	options []string // the options of EXPLAIN, those with the most details first; a server that does not know one gets the next
	read    func(text string, s *doctor.Statement) error
}

var (
	postgresPlan = plan{[]string{"(analyze, buffers, format json)", "(analyze, format json)"}, readPostgresPlan}
	// debug adds RocksDB's own counters.
	yugabytePlan  = plan{[]string{"(analyze, dist, debug, format json)", "(analyze, dist, format json)", "(analyze, format json)"}, readYugabytePlan}
	cockroachPlan = plan{[]string{"analyze (verbose)", "analyze"}, readCockroachPlan}
)

// node is a step of a plan in JSON.
type node map[string]any

// number of a label, wherever it is written as one.
func (n node) number(label string) (v float64, ok bool) {
	switch x := n[label].(type) {
	case float64:
		return x, true
	case string:
		v, err := strconv.ParseFloat(x, 64)
		return v, err == nil
	}
	return 0, false
}

// each calls f for a step and those below it, with how often it was run.
func (n node) each(f func(n node, loops float64)) {
	loops, ok := n.number("Actual Loops")
	if !ok {
		loops = 1
	}
	f(n, loops)
	below, _ := n["Plans"].([]any)
	for _, b := range below {
		if b, ok := b.(map[string]any); ok {
			node(b).each(f)
		}
	}
}

// explained is the only plan of EXPLAIN's answer in JSON, and its first step.
func explained(text string) (all, top node, err error) {
	var answer []node
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer) != 1 {
		return nil, nil, fmt.Errorf("EXPLAIN said %.200q: %w", text, err)
	}
	first, _ := answer[0]["Plan"].(map[string]any)
	return answer[0], first, nil
}

// readSteps reads the figures of the executor of PostgreSQL, and of YugabyteDB, for each step.
func readSteps(all, top node, s *doctor.Statement) {
	if ms, ok := all.number("Execution Time"); ok {
		s.Seconds = ms / 1e3
	}
	if s.Rows < 0 {
		rows, _ := top.number("Actual Rows")
		s.Rows = int64(rows)
	}
	most := -1.0
	top.each(func(n node, loops float64) {
		kind, _ := n["Node Type"].(string)
		name, _ := n["Relation Name"].(string)
		if index, ok := n["Index Name"].(string); ok {
			name = index
		}
		if !strings.Contains(kind, "Scan") || name == "" {
			return
		}
		read := 0.0
		for _, label := range []string{"Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck"} {
			v, _ := n.number(label)
			read += v * loops
		}
		if strings.Contains(kind, "Seq") {
			s.Scanned += int64(read)
		} else {
			s.Entries += int64(read)
		}
		if read > most {
			most, s.Busiest = read, name
		}
	})
}

func readPostgresPlan(text string, s *doctor.Statement) error {
	all, top, err := explained(text)
	if err != nil {
		return err
	}
	readSteps(all, top, s)
	hit, _ := top.number("Shared Hit Blocks")
	read, _ := top.number("Shared Read Blocks")
	s.Pages = int64(hit + read)
	return nil
}

// The counters of YugabyteDB: those of the whole statement, which newer releases have, and those of the steps they are the sum of. Labels as
// in https://docs.yugabyte.com/stable/api/ysql/the-sql-language/statements/perf_explain/; RocksDB's are below "Read Metrics", or have "Metric" before them.
func readYugabytePlan(text string, s *doctor.Statement) error {
	all, top, err := explained(text)
	if err != nil {
		return err
	}
	readSteps(all, top, s)
	g := doctor.Storage{}
	s.Storage = &g
	whole := map[string]float64{}
	var collect func(n map[string]any)
	collect = func(n map[string]any) {
		for label, v := range n {
			if below, ok := v.(map[string]any); ok && label != "Plan" {
				collect(below)
			} else if v, ok := node(n).number(label); ok {
				whole[counter(label)] += v
			}
		}
	}
	collect(all)
	steps := map[string]float64{}
	top.each(func(n node, loops float64) {
		for label, v := range n {
			if v, ok := node(n).number(label); ok {
				steps[counter(label)] += v * loops
			}
			if below, ok := v.(map[string]any); ok {
				for label := range below {
					if v, ok := node(below).number(label); ok {
						steps[counter(label)] += v * loops
					}
				}
			}
		}
	})
	for label, to := range map[string]*int64{"read requests": &g.Reads, "write requests": &g.Writes, "flush requests": &g.Flushes, "rows scanned": &g.Rows,
		"rocksdb_number_db_seek": &g.Seeks, "rocksdb_number_db_next": &g.Nexts} {
		v, ok := whole[label]
		if !ok {
			v = steps[label]
		}
		*to = int64(v)
	}
	s.Entries, s.Scanned = g.Rows, 0 // the scanned rows are of an index, or of the table, which is one
	return nil
}

var ofTableOrIndex = regexp.MustCompile(`^(storage )?(table |index )?`)

// counter is a label however a release spells it: "Storage Read Requests", "Storage Index Read Requests", "Metric rocksdb_number_db_seek".
func counter(label string) string {
	label = strings.TrimPrefix(strings.ToLower(label), "metric ")
	return ofTableOrIndex.ReplaceAllString(label, "")
}

var (
	cockroachLine  = regexp.MustCompile(`^[\s│├└─•]*(\S[^:]*?)\s*:\s*(.*)$`)
	cockroachCalls = regexp.MustCompile(`([\d,]+) (?:KV |gRPC )+calls`)
)

// readCockroachPlan reads CockroachDB's text: "label: value" a line, in a tree. "rows decoded from KV" was "rows read from KV" before 23.2
// (https://www.cockroachlabs.com/docs/stable/explain-analyze).
func readCockroachPlan(text string, s *doctor.Statement) error {
	g := doctor.Storage{}
	s.Storage = &g
	var rows, decoded, most int64 = -1, 0, -1
	told, read := false, int64(0)
	for line := range strings.Lines(text) {
		m := cockroachLine.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil {
			continue
		}
		n := integer(m[2])
		switch label := strings.ToLower(m[1]); label {
		case "execution time":
			if s.Seconds == 0 { // the first is the whole statement's
				s.Seconds = duration(m[2])
			}
		case "rows decoded from kv", "rows read from kv":
			g.Rows, told = n, true
			if calls := cockroachCalls.FindStringSubmatch(m[2]); calls != nil {
				g.Reads = integer(calls[1])
			}
		case "kv rows decoded", "kv rows read":
			decoded, read = decoded+n, n
		case "actual row count":
			if rows < 0 { // the first step's is the result of the statement
				rows = n
			}
		case "table":
			if read > most {
				most, s.Busiest = read, m[2]
			}
			read = 0
		case "mvcc seek count (ext/int)", "mvcc seek count":
			g.Seeks += inner(m[2])
		case "mvcc step count (ext/int)", "mvcc step count":
			g.Nexts += inner(m[2])
		}
	}
	if !told {
		g.Rows = decoded
	}
	if s.Rows < 0 {
		s.Rows = max(rows, 0)
	}
	if rows < 0 && s.Seconds == 0 {
		return fmt.Errorf("EXPLAIN said %.200q, which has no figures", text)
	}
	s.Entries = g.Rows
	return nil
}

// integer reads "30,430,708 (1.4 GiB)".
func integer(text string) (n int64) {
	digits, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	n, _ = strconv.ParseInt(strings.ReplaceAll(digits, ",", ""), 10, 64)
	return n
}

// inner reads the second of "500/9,000": the rows that the storage engine stepped over, deleted rows with it.
func inner(text string) int64 {
	_, second, ok := strings.Cut(text, "/")
	if !ok {
		second = text
	}
	return integer(second)
}

// duration reads "21ms", "1m59s" and "388µs".
func duration(text string) float64 {
	d, _ := time.ParseDuration(strings.TrimSpace(text))
	return d.Seconds()
}
