package portable

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/tables"
)

// An outbox that Citus distributes has one column more, by which its messages lie on the same worker as the rows of an application's table.
// A transaction with rows and messages of one value is that worker's alone, which commits it as PostgreSQL does. All else that is known of an
// outbox stays on the coordinator, where relays read all shards at once. Citus itself knows which outboxes it distributes.
var (
	_ driver.Distributor  = (*Store)(nil)
	_ tables.Distributing = onTables{}
)

// distributed is the name of a statement, or of the one in its place where an outbox is distributed.
func distributed(is bool, name string) string {
	if _, other := statements["distributed_"+name]; is && other {
		return "distributed_" + name
	}
	return name
}

// distribution is the column by which Citus distributes a table, and its type; both empty if it does not.
func (s onTables) distribution(ctx context.Context, on tables.Runner, relation string) (column, kind string, err error) {
	if s.dialect().engine != pg.Citus {
		return "", "", nil
	}
	err = on.Run(ctx, new(tables.Batch).Row(new(bool), "distribution", tables.Args{"relation": relation}, &column, &kind))
	return column, kind, err
}

// Distribution implements tables.Distributing.
func (s onTables) Distribution(ctx context.Context, on tables.Runner, box *tables.Outbox) error {
	column, kind, err := s.distribution(ctx, on, s.messages(box.Name))
	if column == "" || err != nil {
		return err
	}
	box.DistributedBy, box.Words = column, maps.Clone(box.Words)
	box.Words["tenant"] = tables.SQL(column)
	box.Words["more_row"] = tables.SQL(", t." + column + "::text")
	box.Words["there"] = tables.SQL("t." + column + " = any ({tenants}::" + kind + "[]) and t.ts between {first} and {last} and t.seq = any ({seqs}::bigint[])")
	return nil
}

// whereFrom are further arguments about where rows are: between which times, and the values by which they are distributed.
func (s *source) whereFrom(rows tables.Args) tables.Args {
	times, _ := rows["times"].([]time.Time)
	values, _ := rows["row_ids"].([]string)
	if len(times) == 0 || s.Box.DistributedBy == "" {
		return nil
	}
	quoted := make([]string, 0, len(values))
	for _, v := range slices.Compact(slices.Sorted(slices.Values(values))) {
		quoted = append(quoted, `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v)+`"`)
	}
	return tables.Args{"tenants": "{" + strings.Join(quoted, ",") + "}", "first": slices.MinFunc(times, time.Time.Compare), "last": slices.MaxFunc(times, time.Time.Compare)}
}

// shards has the entries of a subscription, with which a page of a distributed outbox begins. They are read on the coordinator. The result of a
// subquery would be sent to each worker before its statement.
type shards struct {
	known  []int64
	behind map[string]bool // keys of which a message waits
}

func (f *shards) entry(scan tables.Scan) error {
	var seq int64
	var parked, hold string
	err := scan(&seq, &parked, &hold)
	f.known = append(f.known, seq)
	for _, key := range []string{parked, hold} {
		if key != "" {
			f.behind[key] = true
		}
	}
	return err
}

// readShards reads which messages come next, and then their contents. Each statement is one transaction, which Citus neither begins nor commits on
// the workers. The arguments have the messages that are in flight, also if they are settled meanwhile.
func (s *source) readShards(ctx context.Context, far *shards, look *tables.Look, args tables.Args) error {
	var times []time.Time
	var seqs []int64
	var values []string
	bytes, most := 0, args["bytes"].(int)
	b := new(tables.Batch).Rows(func(scan tables.Scan) error {
		var at time.Time
		var seq int64
		var value string
		var size int
		if err := scan(&at, &seq, &value, &size); err != nil || bytes > most {
			return err
		}
		bytes += size
		times, seqs, values = append(times, at), append(seqs, seq), append(values, value)
		return nil
	}, "distributed_page", args.With(tables.Args{"known": far.known}))
	if err := s.store.send(ctx, s.store.pgBatch(b)); err != nil || len(seqs) == 0 {
		return err
	}
	page := args.With(s.whereFrom(tables.Args{"times": times, "row_ids": values})).With(tables.Args{"seqs": seqs})
	b = new(tables.Batch).Rows(func(scan tables.Scan) error {
		return look.Found(func(dest ...any) error {
			err := scan(dest...)
			*dest[8].(*bool) = far.behind[*dest[4].(*string)] // as the columns are in the statement
			return err
		})
	}, "fetch", page)
	return s.store.send(ctx, s.store.pgBatch(b))
}

// CreateDistributedOutbox implements driver.Distributor.
func (s *Store) CreateDistributedOutbox(ctx context.Context, name, column, table string) error {
	if err := s.guard.Ready(ctx); err != nil {
		return err
	}
	if engine := s.dialect().engine; engine != pg.Citus {
		return penstock.WithHint(fmt.Errorf("%s does not distribute outboxes", engine), "create it without --distribute-by, or in a database that has the extension citus")
	}
	on := onTables{s}
	_, kind, err := on.distribution(ctx, on, table)
	if err != nil {
		return err
	}
	if kind == "" {
		return penstock.WithHint(fmt.Errorf("table %s is not distributed by a column", table), "distribute it first: select create_distributed_table('%s', 'COLUMN')", table)
	}
	if strings.HasSuffix(kind, "[]") {
		return penstock.WithHint(fmt.Errorf("table %s is distributed by an array, and an outbox cannot be", table), "choose a table that is distributed by a single value")
	}
	if column = strings.TrimSpace(column); slices.Contains([]string{"", "bucket", "ts", "seq", "id", "key", "topic", "headers", "payload"}, column) {
		return penstock.WithHint(fmt.Errorf("an outbox cannot be distributed by a column called %q, which all outboxes have", column), "choose another name, for example tenant")
	}
	return tables.NewOutboxes(distributing{on, column, kind, table}).CreateOutbox(ctx, name)
}

// distributing makes outboxes that have the column too, and lie with the table.
type distributing struct {
	onTables
	column, kind, table string
}

func (s distributing) MakeMessages(ctx context.Context, tx tables.Tx, outbox string) error {
	if err := s.DropMessages(ctx, tx, outbox); err != nil {
		return err
	}
	// The column is the first: Citus cannot split a shard whose distribution column has a generated one before it.
	quoted := pgx.Identifier{s.column}.Sanitize()
	text := strings.NewReplacer("(\n  bucket", "(\n  "+quoted+" "+s.kind+" not null,\n  bucket",
		postgres.words["outbox_key"], "primary key (ts, seq, "+quoted+")").Replace(s.sql("create_outbox", outbox))
	if err := s.define(ctx, text); err != nil {
		return err
	}
	return s.define(ctx, fmt.Sprintf("select create_distributed_table(%s, %s, colocate_with => %s)", pg.Literal(s.messages(outbox)), pg.Literal(s.column), pg.Literal(s.table)))
}

// For is the outbox for messages that lie with the rows that have this value in the column by which the outbox is distributed. Only PublishTx is for
// it: Publish would change the coordinator and a worker.
func (o *Outbox) For(column string, value any) *Outbox {
	return &Outbox{store: o.store, name: o.name, insert: "insert into " + onTables{o.store}.messages(o.name) + " (" + pgx.Identifier{column}.Sanitize() + ", id, key, topic, headers, payload) values ", value: &value}
}

// mostRows are those of one INSERT, with fewer arguments than a statement may have.
const mostRows = 1000

// insertRows writes messages as rows of VALUES. Of an INSERT with a SELECT Citus makes a COPY, which it commits by preparing it.
func (o *Outbox) insertRows(ctx context.Context, tx pgx.Tx, columns []any) error {
	ids, keys, topics := columns[0].([]*string), columns[1].([]*string), columns[2].([]string)
	headers, payloads := columns[3].([]*string), columns[4].([][]byte)
	for from := 0; from < len(ids); from += mostRows {
		args, rows := []any{*o.value}, []string{}
		for i := from; i < min(from+mostRows, len(ids)); i++ {
			n := len(args)
			rows = append(rows, fmt.Sprintf("($1, $%d, $%d, $%d, $%d, $%d)", n+1, n+2, n+3, n+4, n+5))
			args = append(args, ids[i], keys[i], topics[i], headers[i], payloads[i])
		}
		if _, err := tx.Exec(ctx, o.insert+strings.Join(rows, ", "), args...); err != nil {
			return o.explain(err)
		}
	}
	return nil
}

// lacksValue adds the next step to the error of Citus about messages without the value by which they are distributed.
func (o *Outbox) lacksValue(err error) error {
	if err != nil && strings.Contains(err.Error(), "partition column") {
		return penstock.WithHint(err, "outbox %s is distributed: publish in the transaction of its rows, with For and PublishTx, or with an INSERT that has the column", o.name)
	}
	return err
}

// noTransaction refuses a Publish that would change the coordinator and a worker.
func (o *Outbox) noTransaction() error {
	if o.value == nil {
		return nil
	}
	return penstock.WithHint(fmt.Errorf("outbox %s is distributed: only a transaction of yours can publish to it", o.name), "use PublishTx")
}
