package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// rung is one way to process the outbox by hand. Each keeps what the one before it
// improved.
type rung struct {
	name      string
	index     bool   // the covering one
	query     string // of outboxmessages.sql
	publish   publishing
	batched   bool // one UPDATE per batch
	workers   int
	published float64 // messages/s of the author's
}

// ladder as it was published, up to the last rung with confirms.
var ladder = []rung{
	{name: "baseline", query: "query_all", publish: eachAwaited, workers: 1, published: 1_350},
	{name: "covering index", index: true, query: "query", publish: eachAwaited, workers: 1},
	{name: "concurrent publish", index: true, query: "query", publish: allAwaited, workers: 1},
	{name: "batch update", index: true, query: "query", publish: allAwaited, batched: true, workers: 1, published: 2_700},
	{name: "5 workers", index: true, query: "query_locked", publish: allAwaited, batched: true, workers: 5, published: 2_983},
	{name: "batched publish", index: true, query: "query_locked", publish: batchWritten, batched: true, workers: 5, published: 32_500},
}

// rung measures one from fresh rows and an empty queue.
func (p *processor) rung(ctx context.Context, r rung) (result RungResult, err error) {
	err = p.withTable(ctx, r.index, func(keeper *session) error {
		return p.withQueue(ctx, func(q *queue) error {
			p.progress("%s, by hand", r.name)
			if result, err = p.process(ctx, r, q); err != nil {
				return err
			}
			if err := p.marked(keeper, r.name, result.Messages); err != nil {
				return err
			}
			return p.check(ctx, r.name, q, result.Messages)
		})
	})
	return result, err
}

// process runs the workers until the time is up or the table empty.
func (p *processor) process(ctx context.Context, r rung, q *queue) (result RungResult, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers []*ladderWorker
	defer func() {
		for _, w := range workers {
			err = errors.Join(err, w.close())
		}
	}()
	for range r.workers {
		w, err := p.worker(ctx, r, q)
		if err != nil {
			return result, fmt.Errorf("connecting the workers: %w", err)
		}
		workers = append(workers, w)
	}
	var ended latest // of the last commit
	start := time.Now()
	if err := together(ctx, len(workers), func(_ context.Context, i int) error {
		err := workers[i].run(start.Add(p.cfg.Duration))
		ended.note(time.Since(start))
		if err != nil {
			cancel(err) // ends what the others' sessions wait for
		}
		return err
	}); err != nil {
		return result, err
	}
	var sum stepTimes
	for _, w := range workers {
		sum.add(w.took)
	}
	perBatch := func(d time.Duration) float64 { return over(d.Seconds()*1000, float64(sum.batches)) }
	return RungResult{
		Name: r.name, Workers: r.workers, Published: r.published, Messages: sum.messages,
		QueryMS: perBatch(sum.query), PublishMS: perBatch(sum.publish), UpdateMS: perBatch(sum.update),
		MessagesPerSecond: over(float64(sum.messages), ended.seconds()),
	}, nil
}

// stepTimes adds up what one worker's batches took.
type stepTimes struct {
	query, publish, update time.Duration
	batches, messages      int
}

func (t *stepTimes) add(o stepTimes) {
	t.query, t.publish, t.update = t.query+o.query, t.publish+o.publish, t.update+o.update
	t.batches, t.messages = t.batches+o.batches, t.messages+o.messages
}

// ladderWorker is one instance of the background job: a transaction per batch,
// with the rows locked meanwhile where there are several workers.
type ladderWorker struct {
	rung
	*session
	updateBatch string
	publisher   *publisher
	took        stepTimes
}

func (p *processor) worker(ctx context.Context, r rung, q *queue) (*ladderWorker, error) {
	s, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	w := &ladderWorker{rung: r, session: s, updateBatch: p.sql["update_batch"]}
	if err := s.prepare(p.sql, r.query, "update_one"); err != nil {
		return nil, errors.Join(err, w.close())
	}
	if w.publisher, err = dialPublisher(q.reader.SinkURL(), r.publish); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *ladderWorker) close() error {
	w.session.close()
	return w.publisher.close()
}

func (w *ladderWorker) run(until time.Time) error {
	for time.Now().Before(until) && w.ctx.Err() == nil {
		n, err := w.batch()
		if err != nil || n == 0 {
			return err
		}
	}
	return nil
}

// batch is query, publish, update.
func (w *ladderWorker) batch() (n int, err error) {
	if err := w.say("begin"); err != nil {
		return 0, err
	}
	start := time.Now()
	rows, err := w.session.run(w.query)
	if err != nil {
		return 0, err
	}
	queried := time.Now()
	if len(rows) == 0 {
		return 0, w.say("commit")
	}
	if err := w.publisher.publish(w.ctx, rows); err != nil {
		return 0, err
	}
	published := time.Now()
	if err := w.update(rows); err != nil {
		return 0, err
	}
	if err := w.say("commit"); err != nil {
		return 0, err
	}
	w.took.add(stepTimes{queried.Sub(start), published.Sub(queried), time.Since(published), 1, len(rows)})
	return len(rows), nil
}

func (w *ladderWorker) update(rows [][][]byte) error {
	if !w.batched {
		for _, row := range rows {
			if _, err := w.session.run("update_one", row[0]); err != nil {
				return err
			}
		}
		return nil
	}
	ids := make([]pgtype.UUID, len(rows))
	for i, row := range rows {
		ids[i] = pgtype.UUID{Bytes: [16]byte(row[0]), Valid: true}
	}
	return w.do("updating a batch", w.updateBatch, ids)
}
