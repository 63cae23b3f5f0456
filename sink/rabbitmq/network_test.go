package rabbitmq_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/sink/rabbitmq"
)

// Something listens and never answers.
func TestConnectTimeout(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { check(t, silent.Close()) })
	s := open(t, rabbitmq.Config{URL: "amqp://" + silent.Addr().String(), ConnectTimeout: 50 * time.Millisecond})
	wantUnavailable(t, s.Send(patient(t), orders(2)), "no answer within connect_timeout (50ms)")
}

// A running attempt to connect has ended when Close returns.
func TestCloseEndsTheAttempt(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { check(t, silent.Close()) })
	s := open(t, rabbitmq.Config{URL: "amqp://" + silent.Addr().String(), ConnectTimeout: time.Hour})
	ctx, giveUp := context.WithCancel(patient(t))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		s.Send(ctx, orders(1))
	}()
	conn, err := silent.Accept()
	check(t, err)
	defer func() { _ = conn.Close() }()
	giveUp()
	<-sent
	check(t, s.Close(patient(t)))
	check(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Errorf("the connection is open after Close: %v", err)
	}
}

// If there are several hosts, one that answers is used, also for the next connection. If none
// answers, the error names each.
func TestOtherHosts(t *testing.T) {
	room := newRoom(t, testserver.RabbitMQURL(t))
	a, b := tcpproxy.New(t, host(t, room.url)), tcpproxy.New(t, host(t, room.url))
	s := open(t, room.config(t, a.Addr()+","+b.Addr()))
	for round := range 4 {
		there, away := a, b
		if round%2 == 1 {
			there, away = b, a
		}
		there.Resume()
		away.Refuse()
		heals(t, s)
	}
	a.Refuse()
	b.Refuse()
	for ctx := patient(t); ; { // until the attempts that began before have ended
		errs := s.Send(ctx, orders(1))
		if errs != nil && strings.Contains(errs[0].Error(), a.Addr()) && strings.Contains(errs[0].Error(), b.Addr()) {
			wantUnavailable(t, errs, "")
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the error does not name both hosts: %v", errs)
		}
	}
}

// A silent network is given up after three heartbeats, though the Send itself has plenty of time.
func TestSilentNetwork(t *testing.T) {
	room := newRoom(t, testserver.RabbitMQURL(t))
	proxy := tcpproxy.New(t, host(t, room.url))
	cfg := room.config(t, proxy.Addr())
	cfg.Heartbeat = time.Second
	s := open(t, cfg)
	if errs := s.Send(patient(t), orders(1)); errs != nil {
		t.Fatal(errs)
	}
	proxy.Stall(tcpproxy.Both)
	wantUnavailable(t, s.Send(patient(t), orders(10)), "the connection to RabbitMQ was lost")
	proxy.Resume()
	heals(t, s)
}

// The broker has the messages and its answers do not arrive: they are not confirmed, and sending
// them again is right.
func TestAnswersAreLost(t *testing.T) {
	room := newRoom(t, testserver.RabbitMQURL(t))
	proxy := tcpproxy.New(t, host(t, room.url))
	s := open(t, room.config(t, proxy.Addr()))
	if errs := s.Send(patient(t), orders(1)); errs != nil {
		t.Fatal(errs)
	}
	proxy.Stall(tcpproxy.ToClient)
	ctx, cancel := context.WithCancel(context.Background())
	answer := make(chan []error)
	msgs := orders(100)
	go func() { answer <- s.Send(ctx, msgs) }()
	room.drain(t, 1+len(msgs)) // they are all there
	cancel()
	wantUnavailable(t, <-answer, "not confirmed")

	// The connection still works. Abandoned messages do not confuse the next attempt, not even if it
	// now has no route.
	proxy.Resume()
	check(t, room.ch.QueueUnbind(room.queue, "orders.*", room.exchange, nil))
	errs := s.Send(patient(t), msgs)
	for i := range msgs {
		if errs == nil || errs[i] == nil || penstock.IsUnavailable(errs[i]) {
			t.Fatalf("message %d has nowhere to go: %v", i, errs)
		}
	}
	if n := proxy.Accepted(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// While the broker is away, Sends come all the time, but connections do not.
func TestAttemptsAreSpacedOut(t *testing.T) {
	room := newRoom(t, testserver.RabbitMQURL(t))
	proxy := tcpproxy.New(t, host(t, room.url))
	proxy.Refuse()
	s := open(t, room.config(t, proxy.Addr()))
	const sends = 500
	began := time.Now()
	for range sends {
		wantUnavailable(t, s.Send(patient(t), orders(1)), "RabbitMQ at "+proxy.Addr())
	}
	// The first pause is 25 ms at least, later ones are longer.
	if n, most := proxy.Accepted(), 1+int(time.Since(began)/(25*time.Millisecond)); n > most {
		t.Errorf("%d Sends made %d connections in %v, want %d at most", sends, n, time.Since(began), most)
	}
	proxy.Resume()
	heals(t, s)
}

func TestWrongHost(t *testing.T) {
	s := open(t, rabbitmq.Config{URL: "amqp://127.0.0.1:1"})
	errs := s.Send(patient(t), orders(1))
	wantUnavailable(t, errs, "connect to RabbitMQ at 127.0.0.1:1")
	if !strings.Contains(errs[0].Error(), "see that the broker runs") {
		t.Errorf("%v does not tell the next step", errs[0])
	}
}

// While it streams confirms, RabbitMQ sends no heartbeats. The connection must not be presumed
// dead because of that.
func TestBusyConnectionStays(t *testing.T) {
	testseed.Soak(t)
	room := newRoom(t, testserver.RabbitMQURL(t))
	proxy := tcpproxy.New(t, host(t, room.url))
	cfg := room.config(t, proxy.Addr())
	cfg.Heartbeat = time.Second
	s := open(t, cfg)
	msgs, ctx, before := orders(10), patient(t), 0
	for began, last := time.Now(), time.Now(); time.Since(began) < 4500*time.Millisecond; last = time.Now() {
		errs := s.Send(ctx, msgs)
		switch stalled := time.Since(last) > cfg.Heartbeat; {
		case ctx.Err() != nil:
			t.Skip("the machine stands still again and again")
		case stalled: // not busy: the connection may be lost
			heals(t, s)
			began, before = time.Now(), proxy.Accepted()-1
		case errs != nil:
			t.Fatal(errs)
		}
	}
	if n := proxy.Accepted() - before; n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// The server that answers is not RabbitMQ.
func TestNotAMQP(t *testing.T) {
	for name, says := range map[string]string{
		"HTTP":          "HTTP/1.1 400 Bad Request\r\n\r\n",
		"another AMQP":  "AMQP\x03\x01\x00\x00",
		"a large frame": "\x01\x00\x00\xff\xff\xff\xff",
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			check(t, err)
			t.Cleanup(func() { check(t, l.Close()) })
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Write([]byte(says))
					_ = conn.(*net.TCPConn).CloseWrite()
				}
			}()
			s := open(t, rabbitmq.Config{URL: "amqp://" + l.Addr().String()})
			wantUnavailable(t, s.Send(patient(t), orders(1)), "log in to RabbitMQ")
		})
	}
}
