package ingest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/ingest"
	"github.com/penstock/penstock/writer"
)

// gated is a store whose commits wait.
type gated struct {
	writer.OnceStore
	began, open chan struct{}
	fails       error
}

func (g *gated) Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	g.began <- struct{}{}
	<-g.open
	return g.fails
}

func (*gated) RefusesContent(error) bool { return false }

// 200 comes after the commit, and 429 while there is no room. A drain answers the requests in progress.
func TestAnswersAfterTheCommitAndHoldsBack(t *testing.T) {
	store := &gated{began: make(chan struct{}, 10), open: make(chan struct{})}
	s, end := serve(t, store, ingest.Options{MaxWait: time.Second, Writer: writer.Options{Rows: 1}})
	answers := make(chan int, 4)
	send := func() {
		code, text, header, err := post(t.Context(), s.Addr(), "orders", "{}", asJSON)
		if err != nil || code == 429 && header.Get("Retry-After") != "1" {
			t.Error(err, text, header)
		}
		answers <- code
	}
	go send()
	<-store.began
	for range 3 { // one of them waits for the next commit
		go send()
	}
	for range 2 {
		if code := <-answers; code != 429 {
			t.Errorf("got %d before the commit, without room", code)
		}
	}
	select {
	case code := <-answers:
		t.Errorf("answered with %d before the commit", code)
	default:
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		end()
	}()
	close(store.open)
	for range 2 {
		if code := <-answers; code != 200 {
			t.Errorf("what was under way got %d", code)
		}
	}
	<-drained
}

// If the database is down, every client gets 503, without the database's error. Requests larger than the buffer wait.
func TestOutage(t *testing.T) {
	store := &gated{began: make(chan struct{}, 10), open: make(chan struct{}), fails: errors.New("password=hunter2 refused")}
	s, _ := serve(t, store, ingest.Options{MaxBuffered: 100})
	done := make(chan struct{})
	go func() {
		defer close(done)
		header := wants(t, s, "orders", `{"payload":"`+strings.Repeat("x", 90)+`"}`, 503, "send it again with the same ids", asJSON)
		if header.Get("Retry-After") != "1" {
			t.Errorf("got %v", header)
		}
	}()
	<-store.began
	wants(t, s, "orders", `{"payload":"`+strings.Repeat("x", 90)+`"}`, 429, "no room", asJSON)
	close(store.open)
	<-done
	wants(t, s, "orders", "{}", 503, "does not answer", asJSON)
	if _, text, _, _ := post(t.Context(), s.Addr(), "orders", "{}", asJSON); strings.Contains(text, "hunter2") {
		t.Errorf("told %s", text)
	}
}

// A request whose body is announced and not sent keeps no other client out. A drain answers requests whose body is
// incomplete.
func TestSlowClients(t *testing.T) {
	store := &gated{began: make(chan struct{}, 10), open: make(chan struct{})}
	close(store.open)
	s, _ := serve(t, store, ingest.Options{MaxBody: 1000, MaxBuffered: 1500})
	for _, size := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked"} {
		for range 3 {
			conn, err := net.Dial("tcp", s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			fmt.Fprintf(conn, "POST /outboxes/orders/messages HTTP/1.1\r\nHost: localhost\r\n%s\r\n%s\r\nExpect: 100-continue\r\n\r\n", asJSON, size)
			if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, " 100 ") { // its body is waited for
				t.Fatal(line, err)
			}
		}
	}
	wants(t, s, "orders", "{}", 200, "", asJSON)
	wants(t, s, "orders", strings.Repeat(" ", 998)+"{}", 200, "", asJSON)
}
