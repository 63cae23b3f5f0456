package nats_test

import (
	"bufio"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/natsserver"
	"github.com/penstock/penstock/sink/nats"
)

// openEmbedded is open for a sink with a server.
func openEmbedded(t testing.TB, cfg nats.Config) *natsserver.Sink {
	t.Helper()
	s, err := natsserver.Open(patiently(cfg), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(patient(t)); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// The default: one word on the command line, and a separate stream, which other processes can read
// if a listener is configured.
func TestEmbeddedDefault(t *testing.T) {
	cfg, err := nats.ParseURL("embedded:" + t.TempDir() + "?listen=127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := openEmbedded(t, cfg)
	u, err := url.Parse(s.ClientURL())
	if err != nil || u.Hostname() != "127.0.0.1" || u.Port() == "0" || u.Port() == "" {
		t.Fatalf("ClientURL is %q", s.ClientURL())
	}
	mustSend(t, s, messages("flight.departed", "1", "2"))
	r := &reader{url: s.ClientURL()}
	got := r.drain(t, "PENSTOCK", 2)
	if len(got) != 2 || got[0].Topic != "flight.departed" {
		t.Errorf("a reader on the listener got %v", got)
	}
}

func TestEmbeddedWithoutListener(t *testing.T) {
	s := openEmbedded(t, nats.Config{Embedded: &nats.EmbeddedConfig{Dir: t.TempDir()}})
	if got := s.ClientURL(); got != "" {
		t.Errorf("ClientURL is %q without a listener", got)
	}
	mustSend(t, s, messages("a", "1"))
	r := &reader{opts: []natsgo.Option{natsgo.InProcessServer(s.InProcess())}}
	if got := r.drain(t, "PENSTOCK", 1); len(got) != 1 {
		t.Errorf("a reader in the process got %v", got)
	}
}

// The largest message that the server announces fits into its file store.
func TestEmbeddedLargestMessage(t *testing.T) {
	s := openEmbedded(t, nats.Config{Embedded: &nats.EmbeddedConfig{Dir: t.TempDir()}, AckWait: time.Minute}) // a busy disk takes long
	m := messages(strings.Repeat("t", 1000), "large")[0]
	m.Payload = make([]byte, natsserver.MaxPayload-4<<10)
	if err := sendOne(t, s, m); err != nil {
		t.Error(err)
	}
}

func TestEmbeddedDirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	first := openEmbedded(t, nats.Config{Embedded: &nats.EmbeddedConfig{Dir: dir}})
	_, err := natsserver.Open(nats.Config{Embedded: &nats.EmbeddedConfig{Dir: dir}}, nil)
	if err == nil || !strings.Contains(err.Error(), "in use") || !strings.Contains(err.Error(), "listen address") {
		t.Fatalf("a second server on the directory: %v", err)
	}
	mustSend(t, first, messages("a", "1")) // and the first one still works
	if err := first.Close(patient(t)); err != nil {
		t.Fatal(err)
	}
	openEmbedded(t, nats.Config{Embedded: &nats.EmbeddedConfig{Dir: dir}})
}

func TestEmbeddedDirectoryUnusable(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := natsserver.Open(nats.Config{Embedded: &nats.EmbeddedConfig{Dir: file}}, nil); err == nil || !strings.Contains(err.Error(), "write to") {
		t.Errorf("a file as directory: %v", err)
	}
}

func TestEmbeddedPortInUse(t *testing.T) {
	b := startBroker(t, nil)
	_, err := natsserver.Open(nats.Config{Embedded: &nats.EmbeddedConfig{Dir: t.TempDir(), Listen: b.addr()}}, nil)
	if err == nil || !strings.Contains(err.Error(), "listen address") {
		t.Errorf("a port that is in use: %v", err)
	}
}

// Confirmed messages are there after Close and Open, and after the process was killed without
// warning.
func TestEmbeddedKeepsConfirmed(t *testing.T) {
	dir := os.Getenv("PENSTOCK_NATS_KILLED_DIR")
	if dir != "" {
		publishUntilKilled(t, dir)
		return
	}
	dir = t.TempDir()
	cfg := nats.Config{Embedded: &nats.EmbeddedConfig{Dir: dir}}
	first := openEmbedded(t, cfg)
	mustSend(t, first, messages("a", "before"))
	if err := first.Close(patient(t)); err != nil {
		t.Fatal(err)
	}

	self := exec.CommandContext(patient(t), os.Args[0], "-test.run", "^TestEmbeddedKeepsConfirmed$")
	self.Env = append(os.Environ(), "PENSTOCK_NATS_KILLED_DIR="+dir)
	self.Stderr = os.Stderr
	out := must(self.StdoutPipe())
	if err := self.Start(); err != nil {
		t.Fatal(err)
	}
	confirmed := map[string]bool{"before": true}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		id, ok := strings.CutPrefix(lines.Text(), "confirmed ")
		if !ok {
			continue
		}
		confirmed[id] = true
		if len(confirmed) == 1000 {
			if err := self.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = self.Wait()
	if len(confirmed) < 1000 {
		t.Fatalf("the child confirmed only %d messages", len(confirmed))
	}

	again := openEmbedded(t, cfg)
	mustSend(t, again, messages("a", "after"))
	confirmed["after"] = true
	r := &reader{opts: []natsgo.Option{natsgo.InProcessServer(again.InProcess())}}
	for _, m := range r.drain(t, "PENSTOCK", len(confirmed)) {
		delete(confirmed, m.ID)
	}
	if len(confirmed) > 0 {
		t.Errorf("%d confirmed messages are gone after the kill", len(confirmed))
	}
}

// publishUntilKilled is the child of TestEmbeddedKeepsConfirmed.
func publishUntilKilled(t *testing.T, dir string) {
	s, err := natsserver.Open(nats.Config{Embedded: &nats.EmbeddedConfig{Dir: dir}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for round := 0; ; round++ {
		ids := make([]string, 50)
		for i := range ids {
			ids[i] = fmt.Sprintf("%d-%d", round, i)
		}
		for i, err := range s.Send(context.Background(), messages("a", ids...)) {
			if err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
		}
		fmt.Println("confirmed " + strings.Join(ids, "\nconfirmed "))
	}
}

// A producer chooses topics, and must not reach the server's administration, even if the subject
// template is just {topic}.
func TestTopicCannotAdminister(t *testing.T) {
	s := openEmbedded(t, nats.Config{Subject: "{topic}", Embedded: &nats.EmbeddedConfig{Dir: t.TempDir()},
		CreateStream: &nats.StreamConfig{Name: "KEPT", Subjects: []string{"kept.>"}}})
	mustSend(t, s, messages("kept.1", "1"))
	wantError(t, sendOne(t, s, messages("$JS.API.STREAM.DELETE.KEPT", "evil")[0]), permanent, "administers")
	mustSend(t, s, []penstock.Message{messages("kept.2", "2")[0]})
	r := &reader{opts: []natsgo.Option{natsgo.InProcessServer(s.InProcess())}}
	if got := r.drain(t, "KEPT", 2); len(got) != 2 {
		t.Errorf("the stream has %d messages, want 2", len(got))
	}
}
