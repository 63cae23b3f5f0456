package inboxtest

import (
	"context"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/tcpproxy"
)

// Inbox is an inbox of a store: its methods take a Q of a transaction T, which an application's A begins, and H is its handler.
type Inbox[Q, A, H any] interface {
	First(ctx context.Context, tx Q, id string) (bool, error)
	FirstOf(ctx context.Context, tx Q, ids ...string) ([]string, error)
	InOrder(ctx context.Context, tx Q, m penstock.Message, wait time.Duration) ([]penstock.Released, error)
	Due(ctx context.Context, tx Q, n int) ([]penstock.Released, error)
	Process(ctx context.Context, app A, m penstock.Message, wait time.Duration, h H) error
	ProcessDue(ctx context.Context, app A, h H) (int, error)
}

// App is an application that receives: how it begins and ends transactions, and writes in them.
type App[Q, T, A any] struct {
	Pool             A
	Away             func() (A, *tcpproxy.Proxy) // a pool behind a proxy; nil without a connection to lose
	Begin            func(ctx context.Context) (T, error)
	Query            func(tx T) Q
	Exec             func(ctx context.Context, tx T, sql string) error
	Commit, Rollback func(tx T) error
}

// Receiving is the instance with the application's use of the inboxes of a store.
func Receiving[B Inbox[Q, A, H], Q, T, A any, H ~func(context.Context, T, penstock.Released) error](i Instance, inbox func(consumer string) B, app App[Q, T, A]) Instance {
	in := func(consumer string, tx T) Tx { return inTx[B, Q, T, A, H]{inbox(consumer), app, tx} }
	handler := func(consumer string, h Handler) H {
		return func(ctx context.Context, tx T, m penstock.Released) error { return h(ctx, in(consumer, tx), m) }
	}
	i.Begin = func(ctx context.Context, consumer string) (Tx, error) {
		tx, err := app.Begin(ctx)
		return in(consumer, tx), err
	}
	process := func(pool A) Process {
		return func(ctx context.Context, consumer string, m penstock.Message, wait time.Duration, h Handler) error {
			return inbox(consumer).Process(ctx, pool, m, wait, handler(consumer, h))
		}
	}
	i.Process = process(app.Pool)
	if app.Away != nil {
		i.Away = func() (Process, *tcpproxy.Proxy) {
			pool, proxy := app.Away()
			return process(pool), proxy
		}
	}
	i.ProcessDue = func(ctx context.Context, consumer string, h Handler) (int, error) {
		return inbox(consumer).ProcessDue(ctx, app.Pool, handler(consumer, h))
	}
	return i
}

// inTx is a transaction with an inbox.
type inTx[B Inbox[Q, A, H], Q, T, A, H any] struct {
	box B
	app App[Q, T, A]
	tx  T
}

func (x inTx[B, Q, T, A, H]) First(ctx context.Context, id string) (bool, error) {
	return x.box.First(ctx, x.app.Query(x.tx), id)
}

func (x inTx[B, Q, T, A, H]) FirstOf(ctx context.Context, ids ...string) ([]string, error) {
	return x.box.FirstOf(ctx, x.app.Query(x.tx), ids...)
}

func (x inTx[B, Q, T, A, H]) InOrder(ctx context.Context, m penstock.Message, wait time.Duration) ([]penstock.Released, error) {
	return x.box.InOrder(ctx, x.app.Query(x.tx), m, wait)
}

func (x inTx[B, Q, T, A, H]) Due(ctx context.Context, n int) ([]penstock.Released, error) {
	return x.box.Due(ctx, x.app.Query(x.tx), n)
}

func (x inTx[B, Q, T, A, H]) Effect(ctx context.Context, key, place string) error {
	return x.app.Exec(ctx, x.tx, "insert into effects (msgkey, place) values ('"+key+"', '"+place+"')")
}

func (x inTx[B, Q, T, A, H]) Commit() error   { return x.app.Commit(x.tx) }
func (x inTx[B, Q, T, A, H]) Rollback() error { return x.app.Rollback(x.tx) }
