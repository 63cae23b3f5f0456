package adopt

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// While no index has the order, or the ids are random, all rows are listed, without their content, and the list is worked off.
const (
	scanRows  = 100_000          // of one list
	scanShare = 10               // it rests for this many times as long as a scan took
	reviseWay = 30 * time.Second // an index may have been made
)

// chooseWay decides how rows are found, given whether an index has the order, and says so
// once if that is costly.
func (s *Source) chooseWay(usable bool) {
	s.ordered, s.revised = usable, time.Now()
	s.mu.Lock()
	s.scanning = !usable || s.m.random
	s.mu.Unlock()
	switch {
	case !usable:
		s.t.log.Warn("no index has the order in which rows are read: every search for new rows reads the whole table", "hint", "penstock adopt check shows which index to create")
	case s.m.random:
		s.t.log.Warn("no column has the order of the rows: every search for new rows reads the whole table, and rows are sent only roughly in the order of their commits",
			"hint", "name a column such as created_at in columns.order, or columns.order: ["+s.m.config.Columns.ID+"] if the ids do grow")
	}
}

// reconsider looks again now and then whether there is an index meanwhile.
func (s *Source) reconsider(ctx context.Context) {
	if !s.scanning || s.m.random || s.late.waiting() || time.Since(s.revised) < reviseWay {
		return
	}
	s.revised = time.Now()
	if usable, err := s.indexed(ctx); err == nil && usable {
		s.t.log.Info("an index has the order now: reading continues with it")
		s.chooseWay(true)
	}
}

var costly = regexp.MustCompile(`"Node Type": "(Sort|Seq Scan|Bitmap Heap Scan)"`)

// indexed reports whether the plan for reading on walks an index in order. It asks the
// planner, which judges an index best; the connections' settings see to it that the
// answer does not depend on statistics.
func (s *Source) indexed(ctx context.Context) (bool, error) {
	var plan string
	err := s.t.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		c := conn.Conn()
		if _, err := c.Exec(ctx, "prepare _penstock_plan as "+s.st.read[1], pgx.QueryExecModeSimpleProtocol); err != nil {
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

// scan lists the rows that are neither in flight nor out of band, once those of the list before are in flight.
func (s *Source) scan(ctx context.Context) error {
	began := time.Now()
	if s.late.waiting() || began.Before(s.nextScan) {
		return nil
	}
	s.mu.Lock()
	most := scanRows + len(s.inFlight)
	s.mu.Unlock()
	return pgx.BeginFunc(ctx, s.t.pool, func(tx pgx.Tx) error {
		if !s.ordered { // sorting once is better than walking an index that has another order
			if _, err := tx.Exec(ctx, "select set_config('enable_seqscan', 'on', true), set_config('enable_sort', 'on', true), set_config('enable_hashjoin', 'on', true), set_config('enable_indexscan', 'off', true)"); err != nil {
				return err
			}
		}
		ids, _, _, err := s.list(ctx, tx, s.st.scan, inBinary, most, s.lease.id)
		s.late.add(atTheEnd, ids)
		if err == nil && len(ids) < scanRows { // else there is more
			s.nextScan = time.Now().Add(min(scanShare*time.Since(began), s.m.config.Sweep))
		}
		return err
	})
}
