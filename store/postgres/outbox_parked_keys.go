package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// maxKeys is how many parked keys a source keeps in memory. With more, it asks the
// database for the keys of each batch.
var maxKeys = 10_000

// An unknown set is read again after this time.
const reloadAfter = 30 * time.Second

// parkedKeys is a source's knowledge of the parked keys in its part of the ring. Only the
// holder of the lease parks, so the set stays exact. Guarded by Source.mu.
type parkedKeys struct {
	exact   bool
	all     map[string]bool // by name; true if held. Up to maxKeys
	loaded  time.Time
	changed bool // by a write: some may be due
}

// loadParkedKeys reads the set anew.
func (src *Source) loadParkedKeys(ctx context.Context, sess *session) error {
	rows, _ := sess.read.Query(ctx, statement("parked_set", src.store.schema, src.req.Outbox), src.id, maxKeys+1)
	var (
		known = parkedKeys{all: map[string]bool{}, loaded: time.Now()}
		name  string
		held  bool
	)
	if _, err := pgx.ForEachRow(rows, []any{&name, &held}, func() error { known.all[name] = held; return nil }); err != nil {
		return err
	}
	known.exact = len(known.all) <= maxKeys
	if !known.exact {
		known.all = nil
	}
	src.mu.Lock()
	src.parkedKeys = known
	src.mu.Unlock()
	return nil
}

// note keeps the set up to date with a write's changes.
func (p *parkedKeys) note(name string, parked, held bool) {
	switch {
	case !p.exact:
	case !parked:
		delete(p.all, name)
	default:
		p.all[name] = held
		if len(p.all) > maxKeys {
			p.exact, p.all = false, nil
		}
	}
}

// mayHold is false if no key is held.
func (p *parkedKeys) mayHold() bool {
	if !p.exact {
		return true
	}
	for _, held := range p.all {
		if held {
			return true
		}
	}
	return false
}

// behind finds the messages whose keys have parked ones. Where the set is not known
// it asks, for all keys at once.
func (src *Source) behind(ctx context.Context, sess *session, msgs []penstock.Message) ([]driver.KeyOrder, error) {
	if src.req.Ephemeral {
		return nil, nil
	}
	src.mu.Lock()
	exact, unknown := src.parkedKeys.exact, time.Since(src.parkedKeys.loaded)
	none := exact && len(src.parkedKeys.all) == 0
	src.mu.Unlock()
	if none || len(msgs) == 0 {
		return nil, nil
	}
	if !exact && unknown > reloadAfter {
		src.writing.Lock() // or keys that are parked meanwhile would be forgotten
		err := src.loadParkedKeys(ctx, sess)
		src.writing.Unlock()
		if err != nil {
			return nil, err
		}
	}
	parked, err := src.parkedKeysOf(ctx, sess, msgs)
	if err != nil {
		return nil, err
	}
	var order []driver.KeyOrder
	for i := range msgs {
		if key := msgs[i].Key; key != "" && parked[key] {
			if order == nil {
				order = make([]driver.KeyOrder, len(msgs))
			}
			order[i] = driver.BehindParked
		}
	}
	return order, nil
}

// parkedKeysOf returns which of the messages' keys are parked.
func (src *Source) parkedKeysOf(ctx context.Context, sess *session, msgs []penstock.Message) (map[string]bool, error) {
	keys := map[string]bool{}
	src.mu.Lock()
	exact := src.parkedKeys.exact
	for i := range msgs {
		if key := msgs[i].Key; exact && key != "" {
			if _, parked := src.parkedKeys.all[keyName(key)]; parked {
				keys[key] = true
			}
		}
	}
	src.mu.Unlock()
	if exact {
		return keys, nil
	}
	var names []string
	for i := range msgs {
		if key := msgs[i].Key; key != "" && !keys[key] {
			keys[key] = true
			names = append(names, keyName(key))
		}
	}
	clear(keys)
	rows, _ := sess.read.Query(ctx, statement("parked_of", src.store.schema, src.req.Outbox), src.id, names)
	var name string
	_, err := pgx.ForEachRow(rows, []any{&name}, func() error { keys[keyOf(name)] = true; return nil })
	return keys, err
}
