package tables

import "context"

// Names lists objects: "outboxes", "queues", "inboxes" or "subscriptions", in order of their bytes.
func (s *Outboxes) Names(ctx context.Context, of string) ([]string, error) {
	return names(ctx, s.on, of)
}

// namesIn is the column of names in each table that has them.
var namesIn = map[string]string{"outboxes": "name", "queues": "name", "inboxes": "consumer", "subscriptions": "name"}

// names lists the objects in a store, and nothing for another kind.
func names(ctx context.Context, on Runner, of string) (all []string, err error) {
	column, known := namesIn[of]
	if !known {
		return nil, nil
	}
	b := new(Batch).Rows(All(&all), "select distinct "+column+" {collate} as name from {schema}."+of+" order by name", nil)
	return all, on.Run(ctx, b)
}

// LockNames has others wait that make an outbox, a queue or a subscription over an adopted table.
const LockNames = "select version from {schema}.version for update"

// Free is an error if an outbox or a queue has the name of a new one of kind. No other transaction makes one until this one
// ends.
func Free(ctx context.Context, tx Tx, kind, name string) error {
	taken, has := false, ""
	b := new(Batch).Lock(LockNames, nil).Row(&taken, "select 'outbox' from {schema}.outboxes where name = {name} union all select 'queue' from {schema}.queues where name = {name}", Args{"name": name}, &has)
	if err := tx.Run(ctx, b); err != nil || !taken {
		return err
	}
	return Taken(kind, name, has)
}
