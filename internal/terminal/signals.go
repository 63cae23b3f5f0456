package terminal

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// echo is how long a repeated signal counts as the first one. A process that make or timeout
// started gets it from the terminal or the process group, and then from them.
const echo = 500 * time.Millisecond

// Interruptible is ctx until the first SIGINT or SIGTERM. A later signal has its default effect,
// in case a verb hangs in a call that it cannot leave.
func Interruptible(ctx context.Context) context.Context {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(echo, stop) })
	return ctx
}

// OwnSignals are the annotations of a verb that handles signals itself, with OnSignals.
var OwnSignals = map[string]string{"signals": "own"}

// OnSignals calls first and second on SIGINT or SIGTERM. A third one has its default effect, and so
// has one that comes more than an echo after stop. So a repetition of the last signal does not kill
// a process that ended normally.
func OnSignals(first, second func()) (stop func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	quit := make(chan struct{})
	go func() {
		if followSignals(signals, quit, time.Now, first, second) {
			signal.Stop(signals)
		}
	}()
	return sync.OnceFunc(func() {
		close(quit)
		time.AfterFunc(echo, func() { signal.Stop(signals) })
	})
}

// followSignals reports whether there was a second signal.
func followSignals(signals <-chan os.Signal, quit <-chan struct{}, now func() time.Time, first, second func()) bool {
	var began time.Time
	for {
		select {
		case <-signals:
		case <-quit:
			return false
		}
		switch {
		case began.IsZero():
			began = now()
			first()
		case now().Sub(began) >= echo:
			second()
			return true
		}
	}
}
