package portable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pgerror"
)

// InboxTx is what an inbox needs of a transaction: a pgx.Tx, or a *pgx.Conn on which one was begun.
type InboxTx interface {
	Tx
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Inbox is one consumer's inbox. It holds no connection: the transaction is the caller's, and what it writes takes effect
// once if it goes on only with what is new. Safe for concurrent use.
type Inbox struct {
	store    *Store
	consumer string

	mu        sync.Mutex
	forgotten time.Time // what is older was forgotten, and is not walked over again
	since     time.Time // when that began to be known: it is a guess, because transactions roll back
}

// NewInbox names a consumer's inbox in a schema ("" for the default); it does not look whether there is one.
func NewInbox(schema, consumer string) *Inbox {
	return &Inbox{store: nameOnly(schema), consumer: consumer}
}

// nameOnly is a store without connections, which knows the names of tables.
func nameOnly(schema string) *Store {
	if schema == "" {
		schema = DefaultSchema
	}
	return &Store{schema: pgx.Identifier{schema}.Sanitize(), opts: Options{Schema: schema}}
}

const (
	// turns is how many keys of an inbox can be received at a time; those with the same turn wait for each other.
	turns = 64
	// forgetAtOnce is how many ids are forgotten for each one noted, if they are out of their window.
	forgetAtOnce = 2
	// forgetAnew is when an inbox looks for what it took for forgotten.
	forgetAnew = time.Minute
)

// First notes a message's id within tx and says whether it is new: false means that it has been received before, within the
// inbox's window, by a transaction that committed, or by tx itself. If another transaction that is still open has received
// it, First waits for its end. Roll tx back and the id is new again. One round trip.
//
// Errors: *penstock.FieldError (tx goes on), ErrNoInbox; where an isolation level wants it 40001, to be run again.
func (i *Inbox) First(ctx context.Context, tx InboxTx, id string) (bool, error) {
	fresh, err := i.FirstOf(ctx, tx, id)
	return len(fresh) == 1, err
}

// FirstOf is First for many ids, in one round trip. It returns those that are new, in the order given, each once.
func (i *Inbox) FirstOf(ctx context.Context, tx InboxTx, ids ...string) ([]string, error) {
	for n, id := range ids {
		if err := penstock.ValidateReceived(&penstock.Message{ID: id}); err != nil {
			return nil, fmt.Errorf("id %d of %d: %w", n+1, len(ids), err)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	b, box := i.batch()
	i.queueSee(b, box, ids)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, i.explain(err)
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		isNew := box.fresh[id]
		delete(box.fresh, id)
		return !isNew
	}), nil
}

// InOrder notes a message that has a key and returns what may be processed now, within tx and in this order: nothing if m is
// a duplicate, or if the message named by its header penstock-previous has not come; then m is held back, and it can be
// acknowledged once tx has committed. Otherwise m, and what was held back for it. Nothing is held for longer than wait, if
// Due is called now and then. Two round trips.
//
// A transaction that has received a message of a key keeps others of that key waiting, and a sixty-fourth of the other keys,
// so process what it returns in tx and commit. tx has to be of the isolation level read committed or serializable. Errors:
// as First has, 25001 for another isolation level.
func (i *Inbox) InOrder(ctx context.Context, tx InboxTx, m penstock.Message, wait time.Duration) ([]penstock.Released, error) {
	if err := penstock.ValidateReceived(&m); err != nil {
		return nil, err
	}
	if wait < 0 {
		return nil, waitError(wait)
	}
	previous := m.Headers[penstock.HeaderPrevious]
	r := penstock.Released{Message: penstock.Message{ID: m.ID, Key: m.Key, Headers: m.Headers, Payload: m.Payload}}
	b, box := i.batch()
	if m.Key != "" {
		i.queueTurn(b, m.Key)
	}
	i.queueSee(b, box, []string{m.ID})
	var st keyState
	if m.Key != "" {
		i.queueState(b, &st, &r, previous)
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, i.explain(err)
	}
	switch {
	case wait > box.keep/2:
		return nil, waitError(wait)
	case m.Key != "" && box.stale:
		return nil, errStale
	case !box.fresh[m.ID]:
		return nil, nil
	case m.Key == "":
		return []penstock.Released{r}, nil
	}
	r.Late = st.late
	if previous != "" && !r.Late && (!st.received || st.held) {
		if st.received || !st.missing {
			headers, err := headersText(m.Headers)
			if err != nil {
				return nil, err
			}
			_, err = tx.Exec(ctx, i.store.sql("inbox_hold", ""), box.id, m.ID, previous, m.Key, wait.Microseconds(), headers, notNil(m.Payload))
			return nil, i.explain(err)
		}
		r.Gap, r.Missing = true, previous
	}
	return i.release(ctx, tx, box, r, previous, &st, nil)
}

func waitError(wait time.Duration) error {
	return &penstock.FieldError{Field: "wait", Problem: fmt.Sprintf("is %s", wait), Hint: "give up to half of what the inbox keeps"}
}

// errStale: what the transaction reads behind a lock may be from before it.
var errStale = penstock.WithHint(&pgconn.PgError{Severity: "ERROR", Code: "25001", Message: "an inbox in order needs the isolation level read committed or serializable"},
	"begin the transaction with read committed")

// Due returns messages that have waited in vain for the one before them: of up to n keys the message after the gap, with Gap
// and Missing set, and what follows it.
func (i *Inbox) Due(ctx context.Context, tx InboxTx, n int) ([]penstock.Released, error) {
	return i.due(ctx, tx, n, nil)
}

func (i *Inbox) due(ctx context.Context, tx InboxTx, n int, passingOver []string) (all []penstock.Released, err error) {
	if n < 1 || n > 1000 {
		return nil, &penstock.FieldError{Field: "n", Problem: fmt.Sprintf("is %d", n), Hint: "use 1 to 1000, and call Due again for more"}
	}
	passingOver = append([]string{}, passingOver...) // nil would be NULL
	for found := 0; found < n; {
		var key string
		b, box := i.batch()
		b.Queue(i.store.sql("inbox_due_key", ""), i.consumer, passingOver).QueryRow(orNone(&key))
		if err := tx.SendBatch(ctx, b).Close(); err != nil || key == "" {
			return all, i.explain(err)
		}
		if box.stale {
			return nil, errStale
		}
		released, err := i.dueOf(ctx, tx, box, key)
		if err != nil {
			return nil, err
		}
		if len(released) == 0 { // somebody else was quicker
			passingOver = append(passingOver, key)
			continue
		}
		all = append(all, released...)
		found++
	}
	return all, nil
}

// dueOf waits for the turn of a key and releases what is due of it then.
func (i *Inbox) dueOf(ctx context.Context, tx InboxTx, box *inboxRow, key string) ([]penstock.Released, error) {
	var r penstock.Released
	var previous string
	var received bool
	var headers []byte
	b := &pgx.Batch{}
	i.queueTurn(b, key)
	b.Queue(i.store.sql("inbox_due", ""), i.consumer, key).QueryRow(orNone(&r.ID, &r.Key, &headers, &r.Payload, &previous, &received))
	if err := tx.SendBatch(ctx, b).Close(); err != nil || r.ID == "" {
		return nil, i.explain(err)
	}
	if len(headers) > 0 {
		if err := json.Unmarshal(headers, &r.Headers); err != nil {
			return nil, err
		}
	}
	var st keyState
	b = &pgx.Batch{}
	i.queueState(b, &st, &r, previous)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, i.explain(err)
	}
	if !received {
		r.Gap, r.Missing = true, previous
	}
	return i.release(ctx, tx, box, r, previous, &st, func(b *pgx.Batch) {
		b.Queue(i.store.sql("delete from {schema}.held where inbox_id = $1 and id = $2", ""), box.id, r.ID)
		if !received {
			i.store.queueGap(b, box.id, previous, r.Key, r.ID, false)
		}
	})
}

// orNone scans a row, if there is one.
func orNone(dest ...any) func(pgx.Row) error {
	return func(row pgx.Row) error {
		if err := row.Scan(dest...); !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return nil
	}
}

// explain is what the server's refusal means for an inbox's caller.
func (i *Inbox) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case isNoRows(err):
		return noInbox(i.consumer)
	case pgerror.State(err) == "42P01" || pgerror.State(err) == "3F000":
		return penstock.WithHint(fmt.Errorf("inbox of %q: %w: %w", i.consumer, penstock.ErrNotMigrated, err), "run: penstock migrate --profile portable")
	}
	return pgerror.Explain(err, nil)
}

func noInbox(consumer string) error {
	return penstock.WithHint(fmt.Errorf("%w: of %q", penstock.ErrNoInbox, consumer), "create it with penstock inbox create, or Store.CreateInbox")
}

// turnOf is which messages wait for each other.
func turnOf(key string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % turns)
}
