package check

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// watchEvery is the pause between two queries about an index that is being created.
const watchEvery = 200 * time.Millisecond

// watch reports progress from a separate connection until the returned function is called. That
// function returns the process for which the index waited last. Without a second connection there
// is no progress.
func (f *fixer) watch(ctx context.Context, x Index) (stop func() (waitsFor int)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	last := make(chan int, 1)
	go func() {
		waitsFor := 0
		defer func() { last <- waitsFor }()
		conn, err := pgx.ConnectConfig(ctx, f.conn.Config())
		if err != nil {
			return
		}
		defer conn.Close(context.WithoutCancel(ctx))
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			p := Progress{Index: x}
			err := conn.QueryRow(ctx, statement("progress"), int64(f.conn.PgConn().PID())).Scan(&p.Phase, &p.Done, &p.Total, &p.WaitsFor)
			switch {
			case err == nil:
				waitsFor = p.WaitsFor
				if f.opts.Progress != nil {
					f.opts.Progress(p)
				}
			case !isNoRow(err):
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() int {
		cancel()
		return <-last
	}
}
