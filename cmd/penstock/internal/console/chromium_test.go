package console_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// browser is a headless Chromium with one page. A test drives it through a pipe.
type browser struct {
	t       *testing.T
	to      *os.File
	session string

	mu       sync.Mutex
	n        int
	waiting  map[int]chan message
	complain []string
}

type message struct {
	ID     int             `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
	Session string `json:"sessionId,omitempty"`
}

const patience = 3 * time.Minute // for a slow or busy machine: after a read that took 2 s the console does not read again for a minute

// startBrowser starts Debian's chromium, which script/install-servers.sh installs. The test is skipped without it, and fails in CI.
func startBrowser(t *testing.T) *browser {
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("chromium is missing: script/install-servers.sh installs it")
		}
		t.Skip("chromium is missing: script/install-servers.sh installs it")
	}
	theirs, to, err := os.Pipe()
	must(t, err)
	from, out, err := os.Pipe()
	must(t, err)
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
		"--disable-extensions", "--disable-component-update", "--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{theirs, out}
	var said strings.Builder
	cmd.Stderr = &said
	must(t, cmd.Start())
	theirs.Close()
	out.Close()
	b := &browser{t: t, to: to, waiting: map[int]chan message{}}
	done := make(chan struct{})
	go func() { defer close(done); b.read(from) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		to.Close()
		<-done
		from.Close()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	var target struct{ TargetID, SessionID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

func (b *browser) read(from *os.File) {
	r := bufio.NewReader(from)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		switch {
		case m.ID != 0:
			b.waiting[m.ID] <- m
			delete(b.waiting, m.ID)
		case m.Method == "Runtime.exceptionThrown", m.Method == "Log.entryAdded", m.Method == "Runtime.consoleAPICalled":
			b.complain = append(b.complain, string(m.Params))
		}
		b.mu.Unlock()
	}
}

func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	if refused := b.try(method, params, result); refused != "" {
		b.t.Fatalf("%s: %s", method, refused)
	}
}

// try returns the browser's answer to a call that may fail.
func (b *browser) try(method string, params, result any) (refused string) {
	b.t.Helper()
	text, err := json.Marshal(params)
	must(b.t, err)
	if params == nil {
		text = []byte("{}")
	}
	answer := make(chan message, 1)
	b.mu.Lock()
	b.n++
	b.waiting[b.n] = answer
	text, err = json.Marshal(message{ID: b.n, Method: method, Params: text, Session: b.session})
	b.mu.Unlock()
	must(b.t, err)
	_, err = b.to.Write(append(text, 0))
	must(b.t, err)
	select {
	case m := <-answer:
		if m.Error != nil {
			return m.Error.Message
		}
		if result != nil {
			must(b.t, json.Unmarshal(m.Result, result))
		}
	case <-time.After(patience):
		b.t.Fatalf("the browser does not answer to %s", method)
	}
	return ""
}

// Click clicks, and does not wait for the effect.
func (b *browser) Click(selector string) {
	b.t.Helper()
	b.Eval(fmt.Sprintf("(e => setTimeout(() => e.click()))(document.querySelector(%q))", selector), nil)
}

// Headers are sent with every request from now on.
func (b *browser) Headers(headers map[string]string) {
	b.call("Network.setExtraHTTPHeaders", map[string]any{"headers": headers}, nil)
}

// Screen sets the size, and light or dark mode.
func (b *browser) Screen(width, height int, scheme string) {
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]string{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Open opens a page and waits until it is loaded.
func (b *browser) Open(url string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	b.Await(fmt.Sprintf("location.href === %q && document.readyState === 'complete'", url))
}

// Eval returns the value of an expression. It awaits a promise.
func (b *browser) Eval(expression string, to any) {
	b.t.Helper()
	var found struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Text string }
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &found)
	if found.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, found.ExceptionDetails.Text)
	}
	if to != nil && len(found.Result.Value) > 0 {
		must(b.t, json.Unmarshal(found.Result.Value, to))
	}
}

// Await waits until an expression is true, even if pages change.
func (b *browser) Await(expression string) {
	b.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var found struct{ Result struct{ Value any } }
		b.try("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &found) // refused while another page comes
		if found.Result.Value == true {
			return
		}
		if time.Now().After(end) {
			var text string
			b.Eval("location.href + '\\n' + document.body.innerText", &text)
			b.t.Fatalf("it does not come to %s; the page is %s", expression, text)
		}
	}
}

// Complaints are the errors and the output of pages so far; there should be none.
func (b *browser) Complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.complain
}

// Screenshot is a PNG of the page.
func (b *browser) Screenshot() []byte {
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	must(b.t, err)
	return png
}
