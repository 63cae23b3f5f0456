package terminal

import (
	"os"
	"syscall"
	"testing"
	"time"
)

func TestFollowSignals(t *testing.T) {
	signals := make(chan os.Signal)
	times := make(chan time.Time, 1)
	acts := make(chan string, 10)
	done := make(chan bool)
	go func() {
		done <- followSignals(signals, nil, func() time.Time { return <-times },
			func() { acts <- "first" }, func() { acts <- "second" })
	}()
	start := time.Unix(1000, 0)
	at := func(after time.Duration) {
		times <- start.Add(after)
		signals <- syscall.SIGTERM
	}
	at(0)
	if act := <-acts; act != "first" {
		t.Fatalf("the first signal was taken for the %s", act)
	}
	at(0)
	at(echo - 1)
	at(echo)
	if act := <-acts; act != "second" {
		t.Fatalf("got %s", act)
	}
	if !<-done || len(acts) != 0 {
		t.Error("it did not end with the second signal")
	}
}

func TestFollowSignalsEndsWhenToldTo(t *testing.T) {
	quit := make(chan struct{})
	close(quit)
	if followSignals(nil, quit, time.Now, nil, nil) {
		t.Error("it saw a signal that nobody sent")
	}
}

// If the last signal killed, this test's process would end. The signal is repeated because it may
// reach the process after the next line has run.
func TestSignalAfterAVerbHasEnded(t *testing.T) {
	terminate := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		first := make(chan struct{})
		stop := OnSignals(func() { close(first) }, func() { t.Error("the second was called") })
		terminate()
		<-first
		stop()
		terminate()
	}
}
