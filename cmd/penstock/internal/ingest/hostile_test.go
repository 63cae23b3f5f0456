package ingest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/test/testseed"
)

// Hostile clients are refused or cut off. The server's memory is bounded, it publishes nothing of theirs, and it serves other clients
// all the time.
func TestHostileClients(t *testing.T) {
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	random := testseed.New(t.Name(), 0)
	at := "sqlite:" + filepath.Join(t.TempDir(), "app.db")
	store, err := open(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	for _, err := range []error{store.Migrate(t.Context()), store.CreateOutbox(t.Context(), "orders")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	addr, server := process(t, at)
	good := newGood(t, addr)

	const header = "POST /outboxes/orders/messages HTTP/1.1\r\nHost: localhost\r\n"
	const event = "ce-specversion: 1.0\r\nce-id: 1\r\nce-source: /s\r\nce-type: t\r\n"
	var slow []net.Conn
	for range 100 {
		for _, text := range []string{"POST /out", header + "X-Slow: ", header + asJSON + "\r\nContent-Length: 16777216\r\n\r\n{",
			header + asLines + "\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"} {
			slow = append(slow, dial(t, addr, text))
		}
	}
	refuse := func(code int, text string) {
		t.Helper()
		if got := answerTo(t, addr, text); got != code {
			t.Errorf("%.120q: got %d, want %d", text, got, code)
		}
	}
	for _, headers := range []string{"X: " + strings.Repeat("x", 64<<10), strings.Repeat("X-a: b\r\n", 10_000) + "X: y", "ce-" + strings.Repeat("x", 32<<10) + ": 1"} {
		refuse(431, header+headers+"\r\n\r\n{}")
	}
	for _, headers := range []string{"Content-Length: -1", "Content-Length: ten", "Content-Length: 2\r\nContent-Length: 3", "Content-Length: 99999999999999999999",
		"Content-Length: 9", "Content-Length: 1099511627776", "Transfer-Encoding: chunked\r\nContent-Length: 3", "Bad\x00Name: x"} {
		refuse(400, header+asJSON+"\r\n"+headers+"\r\n\r\n{}")
	}
	refuse(501, header+asJSON+"\r\nTransfer-Encoding: gzip\r\n\r\n{}")
	for _, text := range []string{"ce-specversion: 2.0\r\n", "ce-specversion: 1.0\r\n", event + "ce-x: %\r\n", event + "ce-x: %ff\r\n", event + "ce-id: 2\r\n",
		event + "ce-x: " + strings.Repeat("%00", 9) + "\r\n", strings.Replace(event, "1\r", strings.Repeat("x", 257)+"\r", 1), strings.Replace(event, "t\r", "\r", 1)} {
		refuse(400, header+text+"Content-Length: 2\r\n\r\n{}")
	}
	body := func(code int, kind, text string) {
		t.Helper()
		refuse(code, fmt.Sprintf("%s%s\r\nContent-Length: %d\r\n\r\n%s", header, kind, len(text), text))
	}
	const whole = `{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a":1}}`
	for range 20 {
		cut := 1 + random.IntN(len(whole)-1)
		body(400, asEvent, whole[:cut])
		body(400, asEvents, "["+whole+","+whole[:cut])
		body(400, asLines, strings.Repeat("{\"payload\":\"p\"}\n", 5)+whole[:cut])
	}
	for _, text := range []string{"", "null", "[]", "1", `"x"`, whole + whole, `{"specversion":1}`, strings.Repeat("[", 100_000), strings.Repeat(`{"a":`, 100_000), "\xff", whole[:10] + "\x00" + whole[10:],
		strings.Replace(whole, `"data":{"a":1}`, `"data_base64":"%"`, 1), strings.Replace(whole, "{", `{"data_base64":"",`, 1), strings.Replace(whole, `"/s"`, `null`, 1), strings.Replace(whole, `"/s"`, `{}`, 1)} {
		body(400, asEvent, text)
		body(400, asEvents, "["+text+",")
		body(400, asLines, "{}\n"+text+"x")
	}

	// Short text that would take much memory.
	const most = 16 << 20
	body(413, asLines, strings.Repeat("{}\n", most/3))
	body(413, asEvents, "["+strings.Repeat(whole+",", 10_000)+whole+"]")
	body(400, asEvents, "["+strings.Repeat("1,", most/2-10)+"1]")
	var names strings.Builder
	for i := 0; names.Len() < most/8; i++ {
		fmt.Fprintf(&names, `"%x":"",`, i)
	}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { body(400, asJSON, `{"headers":{`+names.String()+`"":""}}`) })
		all.Go(func() { body(400, asEvent, whole[:len(whole)-1]+","+names.String()+`"b":""}`) })
		all.Go(func() { endless(t, addr, header) })
	}
	all.Wait()

	for client := range 8 { // and some messages that are only numerous
		all.Go(func() {
			for i := range testseed.Steps(10_000 / 8) {
				good.send(t, fmt.Sprint("tiny-", client, "-", i))
			}
		})
	}
	all.Wait()
	for _, conn := range slow[:2] { // the wait for a head is limited
		if _, err := io.ReadAll(conn); err != nil {
			t.Errorf("of one whose head does not come to its end: %v", err)
		}
	}
	want := good.end()
	if peak := peakMemory(t, server.Process.Pid); peak > 512<<20 {
		t.Errorf("the server has taken %d MiB", peak>>20)
	}
	var got []string
	for _, m := range published(t, store, "orders") {
		got = append(got, m.ID)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d messages are published, %d were answered with 200", len(got), len(want))
	}
	t.Logf("%d messages of good clients", len(want))
}

// dial sends text, and closes the connection when the test ends.
func dial(t *testing.T, addr, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() })
		err = conn.SetDeadline(time.Now().Add(2 * time.Minute)) // rather than for ever
	}
	if err == nil {
		_, err = io.WriteString(conn, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// answerTo is the code of the answer to this request.
func answerTo(t *testing.T, addr, text string) int {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute)) // rather than for ever
	go func() {
		_, _ = io.WriteString(conn, text) // it may be answered before it is complete
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	return codeOf(t, conn)
}

func codeOf(t *testing.T, conn net.Conn) int {
	t.Helper()
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Error(err)
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// endless sends a body until the server says that it is too large.
func endless(t *testing.T, addr, header string) {
	conn := dial(t, addr, header+asLines+"\r\nTransfer-Encoding: chunked\r\n\r\n")
	go func() {
		for err := error(nil); err == nil; {
			_, err = io.WriteString(conn, "10000\r\n"+strings.Repeat(" ", 1<<16)+"\r\n")
		}
	}()
	if got := codeOf(t, conn); got != http.StatusRequestEntityTooLarge {
		t.Errorf("a body without end: %d", got)
	}
}

// good is a client that sends message after message. Each must be answered with 200.
type good struct {
	addr string
	stop context.CancelFunc
	all  sync.WaitGroup
	mu   sync.Mutex
	ids  []string
}

func newGood(t *testing.T, addr string) *good {
	ctx, stop := context.WithCancel(t.Context())
	g := &good{addr: addr, stop: stop}
	for client := range 2 {
		g.all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				g.send(t, fmt.Sprint("good-", client, "-", i))
			}
		})
	}
	return g
}

func (g *good) send(t *testing.T, id string) {
	code, text, _, err := post(t.Context(), g.addr, "orders", `{"id":"`+id+`"}`, asJSON)
	if err != nil || code != 200 {
		t.Errorf("%s: %d %s %v", id, code, text, err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ids = append(g.ids, id)
}

// end returns the ids of the acknowledged messages.
func (g *good) end() []string {
	g.stop()
	g.all.Wait()
	return g.ids
}

// peakMemory is the peak memory of a process, or 0 if it is unknown.
func peakMemory(t *testing.T, pid int) (bytes int64) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Logf("memory is not looked at: %v", err)
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(rest, &bytes); err != nil {
		t.Error(err)
	}
	t.Logf("the server has had %d MiB", bytes>>10)
	return bytes << 10
}
