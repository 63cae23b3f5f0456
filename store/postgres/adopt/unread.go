package adopt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/pgerror"
)

// A row that the server cannot show fails each statement that selects its content. Then the rows of
// the page are listed without the content, and halved until the row is found. Of that row each column
// is selected alone, so that its dead letter shows which one it is.

// unreadable reports whether an error may be about one row's content. That is a byte that UTF8 does
// not have, in a database of another encoding, a cast that fails (22, or P0001 from PL/pgSQL), or
// damaged storage.
func unreadable(err error) bool {
	state := pgerror.State(err)
	return strings.HasPrefix(state, "22") || state == "P0001" || state == "XX001"
}

// guardFor is how long a worker's claims outlive such an error, after one has not: it takes a savepoint
// for each statement.
const guardFor = time.Minute

// claims reports whether q is the transaction of a worker's claim.
func claims(q querier) bool {
	_, claim := q.(pgx.Tx)
	return claim
}

// guarded reports whether q can continue after an error.
func (s *Source) guarded(q querier) bool {
	return !claims(q) || time.Now().Before(s.guardUntil)
}

// guard is query, after whose error q can continue if it is guarded.
func (s *Source) guard(ctx context.Context, q querier, sql string, args []any, f func(values [][]byte)) error {
	if tx, claim := q.(pgx.Tx); claim && s.guarded(q) {
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return query(ctx, tx, sql, args, f) })
	}
	return query(ctx, q, sql, args, f)
}

// byKeys is a statement about rows that are known by their ids, and its parameters.
func (s *Source) byKeys(q querier, of *lockable, ids []string) (sql string, args []any) {
	if sql = of[0]; claims(q) {
		sql = of[1]
	}
	return sql, append([]any{inBinary}, s.m.keyArrays(ids)...)
}

// loadInto adds rows to byID: all at once, and in halves if the server cannot show one.
func (s *Source) loadInto(ctx context.Context, q querier, byID map[string]row, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	sql, args := s.byKeys(q, &s.st.load, ids)
	d, guarded := s.m.decoder(s.m.whole), s.guarded(q)
	err := s.guard(ctx, q, sql, args, func(values [][]byte) {
		r := d.decode(values)
		byID[r.id] = r
	})
	if !unreadable(err) || !guarded {
		return err
	}
	if len(ids) == 1 {
		return s.loadColumns(ctx, q, byID, ids[0])
	}
	if err := s.loadInto(ctx, q, byID, ids[:len(ids)/2]); err != nil {
		return err
	}
	return s.loadInto(ctx, q, byID, ids[len(ids)/2:])
}

// loadColumns adds the columns of a row that the server can show.
func (s *Source) loadColumns(ctx context.Context, q querier, byID map[string]row, id string) error {
	sql, args := s.byKeys(q, &s.st.find, []string{id})
	there := false
	if err := s.guard(ctx, q, sql, args, func([][]byte) { there = true }); err != nil || !there {
		return err // a row's id has to be readable
	}
	values := make([][]byte, len(s.m.whole.fields))
	var problems []string
	for i, f := range s.m.whole.fields {
		there = false
		err := query(ctx, s.t.pool, s.st.fields[i], args, func(value [][]byte) { there, values[i] = true, slices.Clone(value[0]) })
		switch {
		case unreadable(err):
			problems = append(problems, fmt.Sprintf("column %q cannot be read: %v", f.column, err))
		case err != nil || !there: // it has gone meanwhile
			return err
		}
	}
	r := s.m.decoder(s.m.whole).decode(values)
	if len(problems) > 0 {
		r.unread = errors.New(strings.Join(problems, "; "))
	}
	byID[id] = r
	return nil
}

// rereadRows is how many rows are read of a page that the server could not show at once.
const rereadRows = 100

// reread reads the first rows of such a page. Rows that are gone or out of band, and those that
// other workers have claimed, are there for their places alone.
func (s *Source) reread(ctx context.Context, q querier, after place, n int) (page []row, snapshot string, err error) {
	sql, args := s.st.list.behind(after, n)
	d := s.m.decoder(s.m.placing)
	if err := query(ctx, s.t.pool, sql, args, func(values [][]byte) {
		if values[0] != nil {
			snapshot = string(values[0])
			return
		}
		d.load(values[1:])
		page = append(page, row{id: d.id(), at: d.at(), passed: true})
	}); err != nil {
		return nil, "", err
	}
	ids, err := s.notOutOfBand(ctx, idsOf(page))
	if err != nil {
		return nil, "", err
	}
	byID, err := s.load(ctx, q, ids)
	for i := range page {
		if r, there := byID[page[i].id]; there {
			page[i] = r
		}
	}
	return page, snapshot, err
}

// kill has the work make a dead letter of a row that cannot be a message.
func (s *Source) kill(w *work, r *row, h inFlightRow, why error) {
	m := &r.message
	reason := s.m.reason(r.id, why)
	if len(w.parked.ids) == 0 {
		s.t.log.Warn("rows cannot be messages; they are dead letters", "first", reason)
	}
	m.ID, m.Key, m.Topic = adopted.Shorten(m.ID, penstock.MaxIDBytes), adopted.Shorten(m.Key, penstock.MaxKeyBytes), adopted.Shorten(m.Topic, penstock.MaxTopicBytes)
	h.id = r.id
	w.park(m, &h, &driver.Verdict{Outcome: driver.Dead, Failures: []penstock.Failure{{Attempt: m.Attempt, At: time.Now().UTC(), Err: reason}}})
}

// reason names the row, and where a part of the message is at fault, the columns that it is made of.
func (m *mapping) reason(id string, why error) string {
	var f *penstock.FieldError
	if !errors.As(why, &f) {
		return fmt.Sprintf("row %+q: %v", id, why)
	}
	return fmt.Sprintf("row %+q, column %s: %v", id, strings.Join(m.madeOf(f.Field), ", "), why)
}

// madeOf are the columns that a part of the message is made of.
func (m *mapping) madeOf(part string) (columns []string) {
	if t, templated := map[string]adopted.Template{"id": m.parts.MessageID, "key": m.parts.Key, "topic": m.parts.Topic}[part]; templated {
		return t.Columns()
	}
	if part == "payload" {
		return []string{m.payload.Name}
	}
	for i, name := range m.parts.HeaderNames {
		if strings.HasPrefix(part, fmt.Sprintf("headers[%q]", name)) {
			return m.parts.Headers[i].Columns()
		}
	}
	for _, c := range []*column{m.headers, m.tracing} {
		if c != nil {
			columns = append(columns, c.Name)
		}
	}
	return columns
}
