package adopt

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock/driver"
)

// way is how rows are found.
type way uint8

const (
	// byOrder: an index has the order, so reading continues where it stopped.
	byOrder way = iota
	// byScan: nothing has it, because there is no such index or the ids are random. Then
	// all rows are listed, without their content, and the list is worked off.
	byScan
)

// looked is a Source's knowledge of the table's indexes, and the last list.
type looked struct {
	way   way
	index bool // an index has the order
	since time.Time
	list  []string
	next  time.Time // the next scan
}

const (
	scanRows  = 100_000          // of one list
	scanShare = 10               // it rests for this many times as long as a scan took
	reviseWay = 30 * time.Second // an index may have been made
)

// chooseWay decides how rows are found, given whether an index has the order, and says so
// once if that is costly.
func (s *Source) chooseWay(usable bool) {
	s.looked.since = time.Now()
	s.looked.index = usable
	if usable && !s.m.random {
		return
	}
	s.looked.way = byScan
	if usable {
		s.t.log.Warn("the ids come in no order and no column gives one: every look for new rows is at the whole table, and rows are sent in the order of their transactions only as far as PostgreSQL remembers it",
			"hint", "name a column such as created_at in columns.order, or columns.order: ["+s.m.config.Columns.ID+"] if the ids do grow")
	} else {
		s.t.log.Warn("no index has the order in which rows are read: every look for new rows is at the whole table", "hint", "penstock adopt check tells which index to make")
	}
}

// reconsider looks again now and then whether there is an index meanwhile.
func (s *Source) reconsider(ctx context.Context) {
	if s.looked.way == byOrder || s.m.random || len(s.looked.list) > 0 || time.Since(s.looked.since) < reviseWay {
		return
	}
	s.looked.since = time.Now()
	if usable, err := s.indexed(ctx); err != nil || !usable {
		return
	}
	s.t.log.Info("an index has the order now: reading continues with it")
	s.looked = looked{way: byOrder, index: true}
	s.mu.Lock()
	s.late.on = true
	s.mu.Unlock()
}

var costly = regexp.MustCompile(`"Node Type": "(Sort|Seq Scan|Bitmap Heap Scan)"`)

// indexed reports whether the plan for reading on walks an index in order. It asks the
// planner, which judges an index best; the connections' settings see to it that the
// answer does not depend on statistics.
func (s *Source) indexed(ctx context.Context) (bool, error) {
	var plan string
	err := s.t.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		c := conn.Conn()
		if _, err := c.Exec(ctx, "prepare _penstock_plan as "+s.st.read, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		defer func() {
			_, _ = c.Exec(context.WithoutCancel(ctx), "deallocate _penstock_plan", pgx.QueryExecModeSimpleProtocol)
		}()
		sql := "explain (format json) execute _penstock_plan (1" + strings.Repeat(", null", len(s.m.order)) + ")"
		return c.QueryRow(ctx, sql, pgx.QueryExecModeExec).Scan(&plan)
	})
	return err == nil && !costly.MatchString(plan), err
}

// fetchScanned takes the next rows of the list.
func (s *Source) fetchScanned(ctx context.Context, limit driver.Limit) (*pending, bool, error) {
	p := &pending{before: s.head()}
	ids, err := s.listed(ctx, limit)
	if err != nil {
		return nil, false, err
	}
	rows, err := s.loadInOrder(ctx, s.t.pool, ids)
	if err != nil {
		s.looked.list = append(ids, s.looked.list...)
		return nil, false, err
	}
	s.weigh(rows)
	cut, err := s.fill(ctx, p, rows, limit)
	back := []string(nil)
	for _, r := range rows[min(cut, len(rows)):] { // there was no room for them
		back = append(back, r.id)
	}
	if err != nil {
		back = ids
	}
	s.looked.list = append(back, s.looked.list...)
	return p, len(s.looked.list) > 0, err
}

// listed takes ids off the list, and makes a new one if it is worked off.
func (s *Source) listed(ctx context.Context, limit driver.Limit) ([]string, error) {
	l := &s.looked
	if len(l.list) == 0 {
		if time.Now().Before(l.next) {
			return nil, nil
		}
		began := time.Now()
		if err := s.scan(ctx); err != nil {
			return nil, err
		}
		if len(l.list) < scanRows { // else there is more
			l.next = time.Now().Add(min(scanShare*time.Since(began), s.m.config.Sweep))
		}
	}
	n := min(len(l.list), limit.Messages, 1+limit.Bytes/max(1, s.average))
	ids := l.list[:n:n]
	l.list = l.list[n:]
	return ids, nil
}

// scan lists the rows that are neither in flight nor out of band.
func (s *Source) scan(ctx context.Context) error {
	s.mu.Lock()
	n := scanRows + len(s.inFlight)
	s.mu.Unlock()
	var list []string
	err := pgx.BeginFunc(ctx, s.t.pool, func(tx pgx.Tx) error {
		if !s.looked.index { // sorting once is better than walking an index that has another order
			if _, err := tx.Exec(ctx, "select set_config('enable_seqscan', 'on', true), set_config('enable_sort', 'on', true), set_config('enable_hashjoin', 'on', true), set_config('enable_indexscan', 'off', true)"); err != nil {
				return err
			}
		}
		d := s.m.decoder(s.m.placing)
		return query(ctx, tx, s.st.scan, []any{inBinary, n, s.lease.id}, func(values [][]byte) {
			d.load(values)
			if id := d.id(); !s.isInFlight(id) {
				list = append(list, id)
			}
		})
	})
	s.looked.list = list
	return err
}
