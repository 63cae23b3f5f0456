package tables

import "context"

// Names lists objects: "outboxes", "queues", "inboxes" or "subscriptions", in order of their bytes.
func (s *Outboxes) Names(ctx context.Context, of string) ([]string, error) {
	return Names(ctx, s.on, of)
}

// namesIn is the column of names in each table that has them.
var namesIn = map[string]string{"outboxes": "name", "queues": "name", "inboxes": "consumer", "subscriptions": "name"}

// Names lists the objects in a store, and nothing for another kind.
func Names(ctx context.Context, on Runner, of string) (names []string, err error) {
	column, known := namesIn[of]
	if !known {
		return nil, nil
	}
	b := new(Batch).Rows(All(&names), "select distinct "+column+" {collate} as name from {schema}."+of+" order by name", nil)
	return names, on.Run(ctx, b)
}

// Free is an error if an outbox or a queue has the name of a new one of kind. No other transaction makes one until this one
// ends.
func Free(ctx context.Context, tx Tx, kind, name string) error {
	b := new(Batch).Rows(func(scan Scan) error { return scan(new(int)) }, "select version from {schema}.version for update", nil)
	if err := tx.Run(ctx, b); err != nil {
		return err
	}
	return NameFree(ctx, tx, kind, name)
}

// NameFree is Free where one transaction at a time writes.
func NameFree(ctx context.Context, tx Tx, kind, name string) error {
	taken, has := false, ""
	b := new(Batch).Row(&taken, "select 'outbox' from {schema}.outboxes where name = {name} union all select 'queue' from {schema}.queues where name = {name}", Args{"name": name}, &has)
	if err := tx.Run(ctx, b); err != nil || !taken {
		return err
	}
	return Taken(kind, name, has)
}
