package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/readback"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/store/postgres/adopt"
)

// processor is a run of processor at work.
type processor struct {
	*rig
	cfg   ProcessorConfig
	table string
	sql   statements
}

func newProcessor(r *rig, cfg ProcessorConfig) *processor {
	p := &processor{rig: r, cfg: cfg, table: cfg.Name + "_outbox_messages"}
	p.sql = p.statements("")
	return p
}

// statements, of which fill_outbox is for an outbox.
func (p *processor) statements(outbox string) statements {
	words := p.words(p.table)
	words["batch"] = fmt.Sprint(p.cfg.Batch)
	words["outbox"] = pgx.Identifier{outbox}.Sanitize()
	return readSQL("outboxmessages", words)
}

// withTable lets do have fresh rows, and drops them. Its session is for statements
// before and after what is measured.
func (p *processor) withTable(ctx context.Context, index bool, do func(*session) error) error {
	return contender{Setup: p.Setup, label: "the table", sql: p.sql}.in(ctx, func(s *session) error {
		p.progress("%d fresh rows", p.cfg.Rows)
		if err := p.fill(s, p.sql["fill"]); err != nil {
			return err
		}
		if index {
			if err := s.do("indexing", p.sql["index"]); err != nil {
				return err
			}
		}
		if err := s.do("vacuuming", p.sql["filled"]); err != nil {
			return err
		}
		return do(s)
	})
}

// fill begins with a checkpoint, if the user may ask for one: so none comes while
// something is measured, unless there are millions of rows.
func (p *processor) fill(s *session, sql string) error {
	const mayNot = "42501"
	var refused *pgconn.PgError
	if err := s.do("making a checkpoint", "checkpoint"); err != nil && !(errors.As(err, &refused) && refused.Code == mayNot) {
		return err
	}
	for from := 1; from <= p.cfg.Rows; from += fillChunk {
		if err := s.do("writing rows", sql, from, min(from+fillChunk-1, p.cfg.Rows), p.cfg.Payload-orderOverhead); err != nil {
			return err
		}
	}
	return nil
}

// withQueue lets do have an empty queue, and a disk with nothing to do. A broker waits for the disk
// before it confirms, and on many file systems that means for all that any process has written. The
// first to be measured after rows are filled in would wait for those.
func (p *processor) withQueue(ctx context.Context, do func(*queue) error) error {
	return p.inQueue(ctx, func(q *queue) error {
		syscall.Sync()
		return do(q)
	})
}

// check compares what is in the queue with how many messages were processed.
func (p *processor) check(ctx context.Context, when string, q *queue, processed int) error {
	l := newLedger(0, nil)
	if err := q.readAll(ctx, func(a readback.Arrival) {
		if n, ok := orderNumber(a.Payload); ok {
			l.arrivedAs(n)
		}
	}); err != nil {
		return err
	}
	_, err := l.check("consumer", processed, when)
	return err
}

// marked compares with how many rows are marked as processed.
func (p *processor) marked(s *session, when string, processed int) error {
	var marked int
	if err := s.value("counting what is processed", p.sql["processed"], &marked); err != nil {
		return err
	}
	if marked != processed {
		return fmt.Errorf("%s: %d messages were processed, but %d rows are marked: that must not happen, please report it", when, processed, marked)
	}
	return nil
}

// orderOverhead is what a content has besides its padding, with a number of six
// digits.
const orderOverhead = len(`{"n": 123456, "order": ""}`)

// orderNumber reads the number that a content begins with; false for the warm-up.
func orderNumber(content []byte) (n int, ok bool) {
	rest, ok := bytes.CutPrefix(content, []byte(`{"n": `))
	for i, digit := range rest {
		if digit < '0' || digit > '9' {
			return n, ok && i > 0
		}
		n = n*10 + int(digit-'0')
	}
	return 0, false
}

// ceiling is the broker's, of the same messages.
func (p *processor) ceiling(ctx context.Context) (rate float64, err error) {
	err = p.withQueue(ctx, func(q *queue) error {
		p.progress("the broker's ceiling")
		rate, err = p.brokerCeiling(ctx, q.sink, p.orders, p.cfg.Rows, p.cfg.Duration)
		return err
	})
	return rate, err
}

// orders are the messages of rows, byte for byte but for what their ids are.
func (p *processor) orders(first, n int) []penstock.Message {
	padding := strings.Repeat("x", max(0, p.cfg.Payload-orderOverhead))
	msgs := make([]penstock.Message, n)
	buf := make([]byte, 0, n*(p.cfg.Payload+digits))
	for i := range msgs {
		number := first + i + 1
		from := len(buf)
		buf = strconv.AppendInt(append(buf, `{"n": `...), int64(number), 10)
		buf = append(append(append(buf, `, "order": "`...), padding...), `"}`...)
		id := strconv.Itoa(number)
		msgs[i] = penstock.Message{ID: anyUUID[:len(anyUUID)-len(id)] + id, Topic: "OrderCreated", Payload: buf[from:len(buf):len(buf)]}
	}
	return msgs
}

const anyUUID = "00000000-0000-0000-0000-000000000000"

// ownOutbox has the same messages in an outbox of Penstock's.
func (p *processor) ownOutbox(ctx context.Context) (rate float64, err error) {
	err = p.inNewOutbox(ctx, func(ctx context.Context) error {
		s, err := p.connect(ctx)
		if err != nil {
			return err
		}
		defer s.close()
		p.progress("%d fresh messages", p.cfg.Rows)
		if err := p.fill(s, p.statements(p.outbox)["fill_outbox"]); err != nil {
			return err
		}
		return p.withQueue(ctx, func(q *queue) error {
			p.progress("the relay drains the outbox")
			var processed int
			rate, processed, err = p.drain(ctx, q.sink, func(ctx context.Context) (driver.Source, error) {
				return p.Store.Subscribe(ctx, driver.Subscribe{Outbox: p.outbox, Subscription: subscription, Holder: holder})
			}, func(ctx context.Context) error { return p.Store.Maintain(ctx, p.outbox) })
			if err != nil {
				return err
			}
			return p.check(ctx, "Penstock's outbox", q, processed)
		})
	})
	return rate, err
}

// drain runs a relay until every row is settled, or the time is up, and returns how
// many were settled per second until then, and in all. Messages that the relay sends when it is
// asked to finish are also settled. The lease is taken before the clock starts, as the workers by
// hand are connected before.
func (p *processor) drain(ctx context.Context, sink driver.Sink, open func(context.Context) (driver.Source, error), maintain func(context.Context) error) (rate float64, settled int, err error) {
	first := make(chan driver.Source, 1)
	source, err := open(ctx)
	if err != nil {
		return 0, 0, err
	}
	first <- source
	count := newCounter(p.cfg.Rows)
	start := time.Now()
	stop, err := p.startRelay(ctx, relaying{sink: sink, Options: relay.Options{Observer: count}, from: opened{maintain: maintain, open: func(ctx context.Context) (driver.Source, error) {
		select {
		case source := <-first:
			return source, nil
		default:
			return open(ctx) // it was lost
		}
	}}})
	if err != nil {
		return 0, 0, errors.Join(err, source.Close(ctx))
	}
	timeUp := time.NewTimer(p.cfg.Duration)
	defer timeUp.Stop()
	select {
	case <-count.settled:
	case <-timeUp.C:
	case <-ctx.Done():
		return 0, 0, errors.Join(ctx.Err(), stop())
	}
	took, n := time.Since(start), count.counted.Load()
	if err := stop(); err != nil {
		return 0, 0, err
	}
	return float64(n) / took.Seconds(), int(count.counted.Load()), nil
}

// adopted has Penstock process the table as the last rung has it.
func (p *processor) adopted(ctx context.Context) (rate float64, err error) {
	err = p.withTable(ctx, true, func(keeper *session) (failed error) {
		table, forget, err := p.adopt(ctx, p.table, adopt.Config{Preset: "dotnet"})
		if err != nil {
			return err
		}
		defer func() { failed = errors.Join(failed, forget(ctx)) }()
		return p.withQueue(ctx, func(q *queue) error {
			p.progress("the relay drains the adopted table")
			var processed int
			rate, processed, err = p.drain(ctx, q.sink, func(ctx context.Context) (driver.Source, error) {
				return table.Subscribe(ctx, driver.Subscribe{Holder: holder})
			}, nil)
			if err != nil {
				return err
			}
			if err := p.marked(keeper, "the adopted table", processed); err != nil {
				return err
			}
			return p.check(ctx, "the adopted table", q, processed)
		})
	})
	return rate, err
}
