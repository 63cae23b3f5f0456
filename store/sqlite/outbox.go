package sqlite

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/tables"
)

type outboxes = tables.Outboxes

var _ tables.OutboxDB = onTables{}

// Table returns the quoted name of the table with an outbox's messages, for plain
// INSERTs: penstock_outbox_ and the outbox's name. SQLite takes orders and Orders for
// the same table. So a name with capitals gets a suffix that marks them: Orders is in
// "penstock_outbox_Orders~1". A name with a ~ gets one as well.
func Table(outbox string) string { return quotedName("penstock_outbox_", outbox) }

func quotedName(prefix, of string) string {
	name := prefix + of
	var capitals uint64 // bit i: byte i is a capital letter; names have at most 48 bytes
	for i := range len(of) {
		if c := of[i]; 'A' <= c && c <= 'Z' {
			capitals |= 1 << (i & 63)
		}
	}
	if capitals != 0 || strings.ContainsRune(of, '~') {
		name += "~" + strconv.FormatUint(capitals, 16)
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// unquoted is a quoted name without its quotes, as SQLite's own tables write it.
func unquoted(quoted string) string {
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `""`, `"`)
}

// MakeMessages implements tables.OutboxDB. After it, an application can insert into
// Table(outbox).
func (s onTables) MakeMessages(ctx context.Context, tx tables.Tx, outbox string) error {
	_, err := tx.(onTx).ExecContext(ctx, on(Table(outbox), statement("create_outbox")))
	return err
}

func (s onTables) DropMessages(ctx context.Context, tx tables.Tx, outbox string) error {
	s.forget(outbox)
	_, err := tx.(onTx).ExecContext(ctx, on(Table(outbox), `drop table {table}`))
	return err
}

func (s onTables) Words(outbox string) map[string]tables.SQL {
	return map[string]tables.SQL{"table": tables.SQL(Table(outbox))}
}

func (s onTables) Looks() tables.Options { return tables.Options{Ready: true, Position: true} }

// margin is longer than a transaction of the store takes once it has read the clock.
const margin = 10 * time.Second

// sweep is how often a reader looks for messages that became due earlier than that, and Maintain for those that it has passed over. A variable for
// tests.
var sweep = time.Second

// NewBuckets implements tables.OutboxDB: readers do not share a subscription.
func (s onTables) NewBuckets() int           { return 1 }
func (s onTables) PerSubscription() []string { return []string{"entries"} }

// MessagesBytes implements tables.OutboxDB. It is the size of the outbox's table in the file, all its pages. To find it, it reads the outbox, about
// 0.5 s for a gigabyte, so for a large outbox it returns the last answer for a while.
func (s onTables) MessagesBytes(ctx context.Context, outbox string) (int64, error) {
	bytes, err := s.size(ctx, s.readers, outboxPages(outbox))
	return bytes, s.explain(err)
}

func outboxPages(outbox string) pages {
	return pages{"outbox:" + outbox, []string{unquoted(Table(outbox))}}
}

// StatusUpTo implements driver.StatusCounter. It counts no figure beyond most; 0 means no limit. A backlog costs nothing beyond some thousands.
func (s *Store) StatusUpTo(ctx context.Context, most int) ([]admin.OutboxStatus, error) {
	return tables.StatusUpTo(ctx, s.outboxes, most)
}

// replayed is how many messages one transaction of Replay passes over.
const replayed = 10_000

// Replay implements driver.Operator. Messages that are settled after the request are not part of it.
func (s *Store) Replay(ctx context.Context, r admin.Replay) (n int64, err error) {
	db, bound := onTables{s}, int64(-1)
	box, err := tables.FindOutbox(ctx, db, db, r.Outbox, "")
	for ends := err != nil; !ends; {
		var last, settled int64
		b := new(tables.Batch).Row(new(bool), "replayed", box.Args(tables.Args{"name": r.Subscription, "from_seq": r.FromSeq, "most": replayed}), &last, &settled)
		if err := db.Run(ctx, b); err != nil {
			return n, err
		}
		if bound < 0 {
			if bound = settled; r.ToSeq != 0 {
				bound = min(bound, r.ToSeq)
			}
		}
		part := r
		if ends = last == 0 || last >= bound; ends {
			last = bound
		}
		part.ToSeq = last
		more, err := s.outboxes.Replay(ctx, part)
		if n += more; err != nil {
			return n, err
		}
		r.FromSeq = last + 1
	}
	return n, err
}

// DeadLetterCauses counts the dead letters that q chooses by their last errors, the most frequent first.
func (s *Store) DeadLetterCauses(ctx context.Context, q admin.DeadLetterQuery) (found []admin.DeadCause, err error) {
	args, err := tables.DeadLetterArgs(ctx, s.outboxes, q)
	if err != nil {
		return nil, err
	}
	err = onTables{s}.causes(ctx, &found, "dead_letter_causes", args)
	return found, err
}

// causes reads how many dead letters have each error.
func (s onTables) causes(ctx context.Context, into *[]admin.DeadCause, statement string, args tables.Args) error {
	return s.Run(ctx, new(tables.Batch).Rows(func(scan tables.Scan) error {
		var c admin.DeadCause
		err := scan(&c.Error, &c.Letters, &c.First, &c.Last)
		*into = append(*into, c)
		return err
	}, statement, args))
}

// DeadNumbers returns up to most seqs of a subscription's dead letters, in order, those after the given one. Without a subscription it
// returns the ids of a queue's dead letters.
func (s *Store) DeadNumbers(ctx context.Context, in, subscription string, after int64, most int) (found []int64, err error) {
	var args tables.Args
	text := "select seq from {schema}.entries where subscription_id = {sub} and state > 1 and state = 2 and seq > {after} order by seq limit {most}"
	if subscription == "" {
		text = "select seq from {schema}.dead_jobs where queue_id = {queue} and seq > {after} order by seq limit {most}"
		row, err := s.queues.Queue(in).Row(ctx)
		if err != nil {
			return nil, err
		}
		args = row.Args(nil)
	} else if args, err = tables.DeadLetterArgs(ctx, s.outboxes, admin.DeadLetterQuery{Outbox: in, Subscription: subscription}); err != nil {
		return nil, err
	}
	b := new(tables.Batch).Rows(tables.All(&found), text, args.With(tables.Args{"after": after, "most": most}))
	err = onTables{s}.Run(ctx, b)
	return found, err
}
