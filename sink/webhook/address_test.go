package webhook

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
)

func TestAllowAddresses(t *testing.T) {
	c := Config{AllowAddresses: []string{"10.1.0.0/16", "127.0.0.1", "fd00:1::/32", "::ffff:192.168.0.1"}}
	p, err := c.permitted()
	must(t, err)
	for addr, ok := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "10.2.0.1": false, "127.0.0.1": true, "127.0.0.2": false, "192.168.0.1": true, "192.168.0.2": false,
		"fd00:1::5": true, "fd00:2::5": false, "64:ff9b::a01:203": true, "64:ff9b::a02:203": false, "8.8.8.8": true,
	} {
		if err := p.Check(netip.MustParseAddr(addr)); (err == nil) != ok {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// Names do not bypass the check, and the error has the next step.
func TestNamesOfPrivateAddresses(t *testing.T) {
	for _, url := range []string{"http://localhost:9/", "http://LocalHost:9/"} {
		s, err := Open(Config{URL: url}, nil)
		must(t, err)
		sent := one(t, s, message("m", ""))
		wantKind(t, url, sent, "unavailable")
		var refused *AddressError
		if !errors.As(sent, &refused) || refused.Kind != "a loopback address" {
			t.Errorf("%s: %v", url, sent)
		}
		must(t, s.Close(context.Background()))
	}
}

// A name leads to one address first and to another one later: each connection is checked by its
// own address.
func TestRebinding(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skipf("this machine has no second loopback address: %v", err)
	}
	var served atomic.Int32
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		w.Header().Set("Connection", "close")
	})}}
	srv.Start()
	defer srv.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())

	cfg := Config{URL: "http://rebind.test:" + port + "/", AllowAddresses: []string{"127.0.0.2"}}
	s, err := Open(cfg, nil)
	must(t, err)
	defer s.Close(context.Background())
	dialer, err := newDialer(&s.cfg)
	must(t, err)
	var addr atomic.Value
	addr.Store(netip.MustParseAddr("127.0.0.2"))
	dialer.Resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go answerDNS(server, &addr)
		return client, nil
	}}
	s.transport.DialContext = dialer.DialContext

	wantKind(t, "the first address", one(t, s, message("1", "")), "delivered")
	addr.Store(netip.MustParseAddr("127.0.0.3"))
	err = one(t, s, message("2", ""))
	var refused *AddressError
	if !errors.As(err, &refused) || refused.Addr.String() != "127.0.0.3" {
		t.Errorf("after the name has changed: %v", err)
	}
	wantKind(t, "after the name has changed", err, "unavailable")
	if served.Load() != 1 {
		t.Errorf("%d requests arrived", served.Load())
	}
}

// answerDNS answers queries over a stream with one A record, and those for other
// types with none.
func answerDNS(conn net.Conn, addr *atomic.Value) {
	defer conn.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		end := 12 // of the question: labels, a zero, type and class
		for query[end] != 0 {
			end += int(query[end]) + 1
		}
		question := query[12 : end+5]
		answers := byte(0)
		if binary.BigEndian.Uint16(question[len(question)-4:]) == 1 {
			answers = 1
		}
		reply := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0}, question...)
		if answers == 1 {
			ip := addr.Load().(netip.Addr).As4()
			reply = append(append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4), ip[:]...)
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// The environment's proxy is not used.
func TestProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:9")
	t.Setenv("http_proxy", "http://127.0.0.1:9")
	s, err := Open(Config{URL: "http://example.com"}, nil)
	must(t, err)
	defer s.Close(context.Background())
	if s.transport.Proxy != nil {
		t.Error("the transport looks for a proxy")
	}
}
