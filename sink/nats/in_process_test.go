package nats_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/sink/nats"
)

// A program's own server, with a password and a prefix for inboxes; it outlives the sink.
func TestInProcess(t *testing.T) {
	srv := must(server.NewServer(&server.Options{
		DontListen: true, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		Users: []*server.User{{Username: "app", Password: "hunter2", Permissions: &server.Permissions{
			Subscribe: &server.SubjectPermission{Allow: []string{"_APP.>"}},
		}}},
	}))
	srv.Start()
	defer func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	}()
	if !srv.ReadyForConnections(sinktest.Patience) {
		t.Fatal("the server does not start")
	}
	cfg := nats.Config{
		InProcess: srv, User: "app", Password: "hunter2", InboxPrefix: "_APP", Subject: "orders.{topic}", CreateStream: &nats.StreamConfig{Name: "ORDERS"},
	}
	for _, id := range []string{"1", "2"} {
		s, err := nats.Open(patiently(cfg), nil)
		if err != nil {
			t.Fatal(err)
		}
		mustSend(t, s, messages("placed", id))
		if err := s.Close(patient(t)); err != nil {
			t.Fatal(err)
		}
	}
	r := &reader{opts: []natsgo.Option{natsgo.InProcessServer(srv), natsgo.UserInfo("app", "hunter2"), natsgo.CustomInboxPrefix("_APP")}}
	if got := r.drain(t, "ORDERS", 2); len(got) != 2 {
		t.Errorf("the stream has %v", got)
	}
}

// Settings that exclude a server in the process, and a server that the sink is asked to run
// itself.
func TestInProcessMistakes(t *testing.T) {
	srv := new(server.Server)
	for _, c := range []struct {
		cfg  nats.Config
		want string
	}{
		{nats.Config{InProcess: srv, URL: "nats://h"}, "url is set together with InProcess"},
		{nats.Config{InProcess: srv, TLS: nats.TLSConfig{ServerName: "h"}}, "tls is set together with InProcess"},
		{nats.Config{Embedded: &nats.EmbeddedConfig{Dir: t.TempDir()}}, "set InProcess"},
	} {
		s, err := nats.Open(c.cfg, nil)
		var f *penstock.FieldError
		if !errors.As(err, &f) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.cfg, err, c.want)
		}
		if err == nil {
			s.Close(t.Context())
		}
	}
}

// A second Close leaves the server to the first, which waits for a Send.
func TestEmbeddedClosedTwice(t *testing.T) {
	s := openEmbedded(t, nats.Config{Subject: "{topic}", Embedded: &nats.EmbeddedConfig{Dir: t.TempDir()},
		CreateStream: &nats.StreamConfig{Name: "OTHER", Subjects: []string{"other"}}})
	conn := must(natsgo.Connect("", natsgo.InProcessServer(s.InProcess())))
	defer conn.Close()
	sub := must(conn.SubscribeSync("held")) // acknowledges when it is told to
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	sent, closed := make(chan error, 1), make(chan error, 1)
	go func() { sent <- sendOne(t, s, messages("held", "1")[0]) }()
	held := must(sub.NextMsgWithContext(patient(t)))
	go func() { closed <- s.Close(patient(t)) }()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for !errors.Is(s.Send(gone, messages("held", "2"))[0], penstock.ErrClosed) {
	}
	if err := s.Close(patient(t)); err != nil {
		t.Errorf("the second Close: %v", err)
	}
	if err := held.Respond([]byte(`{"stream":"S","seq":1}`)); err != nil {
		t.Error(err)
	}
	if err := errors.Join(<-sent, <-closed); err != nil {
		t.Error(err)
	}
}
