// Command go speaks the protocol of clients/conformance for Go. It shows that a client can do everything that the harness asks
// for, and that Go works together with the other languages.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/clients/conformance"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres"
)

// request has the arguments of all operations.
type request struct {
	ID         int64                 `json:"id"`
	Op         string                `json:"op"`
	URL        string                `json:"url"`
	Schema     string                `json:"schema"`
	DB         string                `json:"db"`
	Tx         string                `json:"tx"`
	Kind       string                `json:"kind"`
	SQL        string                `json:"sql"`
	Outbox     string                `json:"outbox"`
	Message    conformance.Message   `json:"message"`
	Messages   []conformance.Message `json:"messages"`
	Queue      string                `json:"queue"`
	NewJob     conformance.NewJob    `json:"job"`
	Jobs       []conformance.NewJob  `json:"jobs"`
	Consumer   string                `json:"consumer"`
	MessageID  string                `json:"message_id"`
	N          int                   `json:"n"`
	LeaseMS    int64                 `json:"lease_ms"`
	ByMS       int64                 `json:"by_ms"`
	AfterMS    *int64                `json:"after_ms"`
	DrainMS    int64                 `json:"drain_ms"`
	GroupKey   string                `json:"group_key"`
	Groups     []string              `json:"groups"`
	AllGroups  bool                  `json:"all_groups"`
	Worker     string                `json:"worker"`
	WorkerName string                `json:"worker_name"`
	Acks       []conformance.ID      `json:"acks"`
	Leases     []conformance.ID      `json:"leases"`
	Lease      conformance.ID        `json:"lease"`
	Barrier    conformance.ID        `json:"barrier"`
	WaitsFor   []conformance.ID      `json:"waits_for"`
	OnDead     penstock.OnDead       `json:"on_dead"`
	Error      string                `json:"error"`
	Batch      int                   `json:"batch"`
	Parallel   int                   `json:"concurrency"`
	WorkTx     bool                  `json:"work_tx"`
	Kinds      []string              `json:"kinds"`
	Call       string                `json:"call"`
	Outcome    string                `json:"outcome"`
	Reason     string                `json:"reason"`
	Report     string                `json:"report"`
	Name       string                `json:"name"`
	Result     string                `json:"result"`
}

func (r *request) after(missing time.Duration) time.Duration {
	if r.AfterMS == nil {
		return missing
	}
	return ms(*r.AfterMS)
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// program has the open databases, transactions and workers.
type program struct {
	ctx  context.Context
	mu   sync.Mutex // of standard output
	out  *json.Encoder
	last atomic.Int64 // name given

	dbs, txs, workers, calls sync.Map
}

func main() {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	p := &program{ctx: context.Background(), out: json.NewEncoder(os.Stdout)}
	go func() {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM)
		<-signals
		p.workers.Range(func(_, w any) bool { w.(*worker).cancel(); return true })
		p.workers.Range(func(_, w any) bool { <-w.(*worker).done; return true })
		os.Exit(0)
	}()
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			os.Exit(0)
		}
		var r request
		if err := errors.Join(err, json.Unmarshal(line, &r)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		go p.answer(&r)
	}
}

func (p *program) write(line any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.out.Encode(line); err != nil {
		os.Exit(1) // the harness has ended
	}
}

func (p *program) answer(r *request) {
	result, err := p.do(p.ctx, r)
	if err != nil {
		p.write(map[string]any{"id": r.ID, "error": wireError(err)})
		return
	}
	p.write(map[string]any{"id": r.ID, "result": result})
}

// keep gives a name to an open object.
func (p *program) keep(in *sync.Map, what any) string {
	name := strconv.FormatInt(p.last.Add(1), 10)
	in.Store(name, what)
	return name
}

// open finds it again.
func open[T any](in *sync.Map, name string) (T, error) {
	if what, ok := in.Load(name); ok {
		return what.(T), nil
	}
	var none T
	return none, fmt.Errorf("there is no %T called %q", none, name)
}

// db is a client of a database.
type db struct {
	*postgres.Store
	url, schema string
}

func (p *program) do(ctx context.Context, r *request) (any, error) {
	switch r.Op {
	case "hello":
		return conformance.Hello{Language: "go", Version: "0.1.0", Kinds: []string{"pgx", "database/sql"}}, nil
	case "open":
		store, err := postgres.Open(ctx, r.URL, postgres.Options{Schema: r.Schema})
		if err != nil {
			return nil, err
		}
		if version, err := store.SchemaVersion(ctx); err != nil || version == 0 {
			_ = store.Close()
			return nil, errors.Join(err, errors.New("the database is not migrated: run penstock migrate"))
		}
		return map[string]string{"db": p.keep(&p.dbs, &db{store, r.URL, r.Schema})}, nil
	case "outcome":
		if c, ok := p.calls.LoadAndDelete(r.Call); ok {
			c.(*call).outcome <- r
		}
		return nil, nil
	case "step":
		return p.step(r)
	case "stop":
		w, err := open[*worker](&p.workers, r.Worker)
		if err != nil {
			return nil, err
		}
		w.cancel()
		<-w.done
		p.workers.Delete(r.Worker)
		return nil, w.err
	}
	if r.Tx != "" {
		t, err := open[tx](&p.txs, r.Tx)
		if err != nil {
			return nil, err
		}
		return p.inTx(ctx, t, r)
	}
	d, err := open[*db](&p.dbs, r.DB)
	if err != nil {
		return nil, err
	}
	return p.onDB(ctx, d, r)
}

func (p *program) inTx(ctx context.Context, t tx, r *request) (any, error) {
	switch r.Op {
	case "commit", "rollback":
		p.txs.Delete(r.Tx)
		return nil, t.end(ctx, r.Op == "commit")
	case "execute":
		return t.execute(ctx, r.SQL)
	case "publish":
		return nil, t.publish(ctx, r.Outbox, message(r.Message))
	case "publish_many":
		msgs := make([]penstock.Message, len(r.Messages))
		for i, m := range r.Messages {
			msgs[i] = message(m)
		}
		return nil, t.publish(ctx, r.Outbox, msgs...)
	case "enqueue":
		made, err := t.enqueue(ctx, r.Queue, newJob(r.NewJob))
		if err != nil {
			return nil, err
		}
		return enqueued(made[0]), nil
	case "enqueue_many":
		jobs := make([]penstock.NewJob, len(r.Jobs))
		for i, j := range r.Jobs {
			jobs[i] = newJob(j)
		}
		made, err := t.enqueue(ctx, r.Queue, jobs...)
		all := make([]conformance.Enqueued, len(made))
		for i, m := range made {
			all[i] = enqueued(m)
		}
		return all, err
	case "barrier":
		b, err := t.barrier(ctx, r.Queue)
		return conformance.ID(b), err
	case "seal":
		return nil, t.seal(ctx, r.Queue, int64(r.Barrier))
	case "publish_after":
		id, err := t.publishAfter(ctx, r.Queue, penstock.WaitingMessage{Message: message(r.Message), Outbox: r.Outbox, WaitsFor: conformance.Numbers(r.WaitsFor), OnDead: r.OnDead})
		return conformance.ID(id), err
	case "inbox_first":
		return t.first(ctx, r.Consumer, r.MessageID)
	}
	return nil, fmt.Errorf("there is no operation %q with a tx", r.Op)
}

func (p *program) onDB(ctx context.Context, d *db, r *request) (any, error) {
	q := d.Queue(r.Queue)
	held := func(leases []int64, err error) (any, error) { return conformance.IDs(leases), err }
	switch r.Op {
	case "close":
		p.dbs.Delete(r.DB)
		return nil, d.Close()
	case "begin":
		t, err := begin(ctx, d, r.Kind)
		if err != nil {
			return nil, err
		}
		return map[string]string{"tx": p.keep(&p.txs, t)}, nil
	case "claim":
		c := driver.Claim{Jobs: r.N, Lease: ms(r.LeaseMS), Group: r.GroupKey, Worker: r.Worker}
		claimed := conformance.Claimed{Jobs: []conformance.Job{}, Acked: []conformance.ID{}}
		var acked []int64
		var jobs []penstock.Job
		var err error
		switch acks := conformance.Numbers(r.Acks); {
		case len(r.Groups) > 0:
			c.Jobs = 1
			acked, jobs, err = q.AckClaimGroups(ctx, acks, r.Groups, c)
		case r.Acks == nil:
			jobs, err = q.Claim(ctx, c)
		default:
			acked, jobs, err = q.AckClaim(ctx, acks, c)
		}
		for _, j := range jobs {
			claimed.Jobs = append(claimed.Jobs, conformance.OfJob(j))
		}
		claimed.Full = slices.Contains(acked, driver.Full)
		acked = slices.DeleteFunc(acked, func(lease int64) bool { return lease == driver.Full })
		claimed.Acked = append(claimed.Acked, conformance.IDs(acked)...)
		return claimed, err
	case "ack":
		return held(q.Ack(ctx, conformance.Numbers(r.Leases)...))
	case "extend":
		return held(q.Extend(ctx, ms(r.ByMS), conformance.Numbers(r.Leases)...))
	case "release":
		return held(q.Release(ctx, r.after(0), conformance.Numbers(r.Leases)...))
	case "retry":
		dead, err := q.Retry(ctx, int64(r.Lease), r.after(-1), r.Error)
		return map[string]bool{"dead": dead}, err
	case "dead_letter":
		return nil, q.DeadLetter(ctx, int64(r.Lease), r.Error)
	case "report":
		return nil, q.Report(ctx, int64(r.Lease), []byte(r.Report))
	case "maintain":
		return nil, q.Maintain(ctx)
	case "work":
		return map[string]string{"worker": p.work(d, r)}, nil
	}
	return nil, fmt.Errorf("there is no operation %q with a db", r.Op)
}

func message(m conformance.Message) penstock.Message {
	return penstock.Message{ID: m.ID, Key: m.Key, Topic: m.Topic, Headers: m.Headers, Payload: m.Payload}
}

func newJob(j conformance.NewJob) penstock.NewJob {
	n := penstock.NewJob{Payload: j.Payload, Kind: j.Kind, Key: j.Key, Group: j.GroupKey, Priority: j.Priority, DedupKey: j.DedupKey, Headers: j.Headers,
		UniqueKey: j.UniqueKey, OnConflict: j.OnConflict, DebounceMax: time.Duration(j.DebounceMax) * time.Millisecond,
		MaxAttempts: j.MaxAttempts, Timeout: time.Duration(j.Timeout) * time.Millisecond,
		Holds: int64(j.Holds), WaitsFor: conformance.Numbers(j.WaitsFor), OnDead: j.OnDead}
	if j.NotBefore != nil {
		n.NotBefore = *j.NotBefore
	}
	if j.Deadline != nil {
		n.Deadline = *j.Deadline
	}
	return n
}

func enqueued(m penstock.Enqueued) conformance.Enqueued {
	return conformance.Enqueued{ID: conformance.ID(m.ID), Deduplicated: m.Deduplicated}
}

// sqlStates are the SQLSTATEs behind the errors of the Go packages.
var sqlStates = map[error]string{penstock.ErrNoQueue: "42P01", penstock.ErrNoOutbox: "42P01", penstock.ErrNoInbox: "42P01", penstock.ErrLeaseLost: "PS001"}

func wireError(err error) *conformance.Error {
	e := &conformance.Error{Message: err.Error()}
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		e.SQLState = refused.Code
	}
	for known, state := range sqlStates {
		if errors.Is(err, known) {
			e.SQLState = state
		}
	}
	if field, ok := errors.AsType[*penstock.FieldError](err); ok {
		e.Field = conformance.ArgumentOf(field.Field)
	}
	return e
}
