package tables

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/adopted"
)

// Where each text is in the array that stands for the headers of an adopted table's row; those of templates follow.
const (
	textID = iota
	textPlace
	textCreatedAt
	textHeaders
	textTracing
	textTemplates
)

// message makes the message of an adopted table's row. One that was never parked gets its number here.
func (a *Adoption) message(r *Row) (m penstock.Message, err error) {
	var texts []*string
	if err := json.Unmarshal(r.headers, &texts); err != nil {
		return m, err
	}
	text := func(i int) string {
		if i >= len(texts) || texts[i] == nil {
			return ""
		}
		return *texts[i]
	}
	if r.RowID = text(textID); r.Seq == 0 {
		a.last++
		r.Seq = a.last
	}
	if a.numbers {
		place, err := strconv.ParseInt(text(textPlace), 10, 64)
		if err != nil {
			return m, err
		}
		r.TS = time.UnixMicro(place)
	}
	m = penstock.Message{ID: r.id, Seq: r.Seq, Key: r.key, Topic: r.topic, Payload: r.payload, Attempt: 1}
	switch {
	case texts[textCreatedAt] != nil:
		micros, err := strconv.ParseInt(text(textCreatedAt), 10, 64)
		if err != nil {
			return m, err
		}
		m.CreatedAt = time.UnixMicro(micros).UTC()
	case !a.numbers:
		m.CreatedAt = r.TS.UTC()
	}
	headers := map[string]string{}
	adopted.Properties(text(textTracing), headers)
	adopted.Flatten([]byte(text(textHeaders)), headers)
	for i, name := range a.headers {
		if texts[textTemplates+i] != nil {
			headers[name] = text(textTemplates + i)
		}
	}
	if len(headers) > 0 {
		m.Headers = headers
	}
	if r.Unfit = m.Validate(); r.Unfit != nil {
		m.ID, m.Key, m.Topic, m.Headers = adopted.Shorten(m.ID, penstock.MaxIDBytes), adopted.Shorten(m.Key, penstock.MaxKeyBytes), adopted.Shorten(m.Topic, penstock.MaxTopicBytes), nil
	}
	return m, nil
}

// unfit takes away the rows that cannot be messages.
func (p *Page) unfit() (taken Page) {
	if !slices.ContainsFunc(p.flights, func(f *Flight) bool { return f.Unfit != nil }) {
		return taken
	}
	kept := Page{full: p.full}
	for i, f := range p.flights {
		to := &kept
		if f.Unfit != nil {
			to = &taken
		}
		if p.keyOrder != nil {
			to.keyOrder = append(to.keyOrder, p.keyOrder[i])
		}
		to.msgs, to.flights, to.places = append(to.msgs, p.msgs[i]), append(to.flights, f), append(to.places, p.places[i])
	}
	p.msgs, p.keyOrder, p.flights, p.places = kept.msgs, kept.keyOrder, kept.flights, kept.places
	p.full = true
	return taken
}

// refuse makes them dead letters, which explain why.
func (r *Reader) refuse(ctx context.Context, p Page) error {
	parts := make([]*Part, len(p.msgs))
	for i, f := range p.flights {
		parts[i] = &Part{Msg: &p.msgs[i], Flight: f, Verdict: driver.Verdict{Outcome: driver.Dead, Failures: []penstock.Failure{{Attempt: 1, At: time.Now().UTC(), Err: f.Unfit.Error()}}}}
	}
	r.settling.Lock()
	defer r.settling.Unlock()
	return r.write(ctx, r.newRow(), parts)
}

// adoptedReader is one reader of an adopted table.
type adoptedReader struct {
	AdoptedSource
	reader *Reader
	of     *Adopted
	kept   time.Time // when it was looked last for rows that are gone
}

// Fetch implements driver.Source.
func (r *adoptedReader) Fetch(ctx context.Context, limit driver.Limit) (driver.Batch, error) {
	limit.Messages = min(limit.Messages, r.of.config.Batch)
	return r.AdoptedSource.Fetch(ctx, limit)
}

// Renew implements driver.Source. From time to time it adds up settled rows, and forgets rows that were deleted by others: parked, they would
// keep their keys waiting for ever.
func (r *adoptedReader) Renew(ctx context.Context) error {
	err := r.AdoptedSource.Renew(ctx)
	if err != nil || time.Since(r.kept) < r.of.config.Sweep {
		return err
	}
	r.kept = time.Now()
	return r.of.on.Within(ctx, func(tx Tx) error { return r.keep(ctx, tx) })
}

// forgotten is how many rows are forgotten at a time.
const forgotten = 1000

func (r *adoptedReader) keep(ctx context.Context, tx Tx) error {
	args := r.reader.Box.Args(Args{"sub": r.reader.ID, "holder": r.reader.Req.Holder, "most": forgotten})
	var epoch int64
	b := new(Batch).Rows(func(scan Scan) error { return scan(&epoch) }, "select epoch from {schema}.subscriptions where id = {sub} and holder = {holder} for update", args)
	if err := tx.Run(ctx, b); err != nil || epoch != r.reader.Epoch {
		return err // the next Renew says so
	}
	if err := r.of.rows.fold(ctx, tx, r.reader.ID); err != nil {
		return err
	}
	var seqs []int64
	keys := map[string]bool{}
	if err := tx.Run(ctx, new(Batch).Rows(func(scan Scan) error {
		var seq int64
		var key string
		err := scan(&seq, &key)
		seqs, keys[key] = append(seqs, seq), true
		return err
	}, "adopt_gone", args)); err != nil || len(seqs) == 0 {
		return err
	}
	b = new(Batch).Do("end_discarded_entries", args.With(Args{"seqs": seqs}))
	for key := range keys {
		b.Do("adopt_head", args.With(Args{"key": key}))
	}
	b.Do("release", args.With(Args{"keys": slices.Sorted(maps.Keys(keys))}))
	return tx.Finish(ctx, b)
}
