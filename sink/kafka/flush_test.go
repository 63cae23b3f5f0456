package kafka

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Nothing is sent before its release, however long that takes. If a line were sent while it is
// still put into place, a part could be refused and the rest accepted. Time is virtual, and so is
// the network.

// The library keeps its records until it has to send them.
func TestLibraryWaitsForFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, network, cfg := virtualCluster(t)
		options, err := cfg.options()
		check(t, err)
		client, err := kgo.NewClient(append(options, kgo.Dialer(network.dial))...)
		check(t, err)
		defer client.Close()
		for round := range int64(3) { // in the first one it has to ask about the topic
			client.Produce(t.Context(), knownRecord(), nil)
			client.Produce(t.Context(), knownRecord(), nil)
			time.Sleep(time.Hour)
			if n := stored(cluster); n != 2*round {
				t.Fatalf("an hour later, and without a Flush, %d records are there, want %d", n, 2*round)
			}
			check(t, client.Flush(t.Context()))
			if n := stored(cluster); n != 2*round+2 {
				t.Fatalf("%d records are there, want %d", n, 2*round+2)
			}
			synctest.Wait() // or it would not wait at all: see valve
		}
	})
}

// So does a producer right after a Flush, when the library still looks for more. If one broker
// leads two topics, the second needs another request, which has to wait for the first answer.
func TestPlacedIsNotSent(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			cluster, network, cfg := virtualCluster(t)
			p, err := newProducer(&cfg, network.dial, nil, slog.New(slog.DiscardHandler))
			check(t, err)
			defer func() {
				p.end(context.Canceled)
				<-p.closed
			}()
			p.fly(t.Context(), &flight{scouts: []*kgo.Record{knownRecord(), {Topic: "other"}}})
			f := &flight{line: []*kgo.Record{knownRecord(), knownRecord(), knownRecord()}, done: make(chan struct{})}
			f.left.Store(3)
			if !p.place(f) {
				t.Fatal("the line is not in place")
			}
			synctest.Wait()
			if n := stored(cluster); n != 2 {
				t.Fatalf("%d records are there before they are let go, want the two scouts alone", n)
			}
			p.valve.open()
			check(t, p.client.Flush(t.Context()))
			<-f.done
			if n := stored(cluster); n != 5 || f.failures != nil {
				t.Fatalf("%d records are there, want 5; failures: %v", n, f.failures)
			}
		})
	}
}

// A producer that ends while its valve is shut is still cleaned up, and nothing was sent.
func TestEndBehindValve(t *testing.T) {
	for range 20 { // the library does not always write in time
		synctest.Test(t, func(t *testing.T) {
			cluster, network, cfg := virtualCluster(t)
			p, err := newProducer(&cfg, network.dial, nil, slog.New(slog.DiscardHandler))
			check(t, err)
			p.fly(t.Context(), &flight{scouts: []*kgo.Record{knownRecord(), {Topic: "other"}}})
			f := &flight{line: []*kgo.Record{knownRecord()}, done: make(chan struct{})}
			f.left.Store(1)
			p.place(f)
			synctest.Wait() // the library is about to write
			p.end(errChanged)
			<-f.done
			<-p.closed
			if n := stored(cluster); n != 2 || len(f.failures) != 1 {
				t.Errorf("%d records are there, %d failed", n, len(f.failures))
			}
		})
	}
}

func virtualCluster(t *testing.T) (*kfake.Cluster, *pipes, Config) {
	network := &pipes{backlog: make(chan net.Conn), closed: make(chan struct{})}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "known", "other"), kfake.ListenFn(network.listen))
	check(t, err)
	t.Cleanup(cluster.Close)
	cfg := Config{URL: "kafka://" + network.Addr().String()}
	cfg.SetDefaults()
	return cluster, network, cfg
}

func knownRecord() *kgo.Record { return &kgo.Record{Topic: "known", Value: []byte("x")} }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pipes is a network of one address.
type pipes struct {
	backlog chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

func (p *pipes) listen(string, string) (net.Listener, error) { return p, nil }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.backlog <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.backlog:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9092} }
