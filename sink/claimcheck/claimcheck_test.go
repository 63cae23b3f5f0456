package claimcheck_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/docblock"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/sink/claimcheck"
	"github.com/penstock/penstock/sink/format"
	"github.com/penstock/penstock/sink/kafka"
	"github.com/penstock/penstock/sink/sqs"
	"github.com/penstock/penstock/sink/stdout"
)

// The suite of the sinks, with a sink that keeps order. Package s3 has it with an object store.
func TestConformance(t *testing.T) {
	sinktest.Run(t, sinktest.Harness{
		Features: sinktest.Features{ReadBack: true, InOrder: true},
		New: func(t *testing.T) *sinktest.Destination {
			out, payloads := &lines{}, claimcheck.Directory(t.TempDir())
			return &sinktest.Destination{
				Topics: []string{"orders.placed", "orders.cancelled"},
				Open: func(*testing.T, *slog.Logger) driver.Sink {
					return claimcheck.Wrap(stdout.New(out), payloads, "orders", 1)
				},
				Drain: func(t *testing.T, _ int) []sinktest.Received { return out.take(t, payloads) },
			}
		},
	})
}

// lines has the output of stdout.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) take(t *testing.T, payloads claimcheck.Store) (got []sinktest.Received) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		var v struct {
			ID, Key, Topic, Payload string
			Headers                 map[string]string
			PayloadBase64           []byte    `json:"payload_base64"`
			CreatedAt               time.Time `json:"created_at"`
		}
		check(t, json.Unmarshal([]byte(line), &v))
		payload := append([]byte(v.Payload), v.PayloadBase64...)
		payload, err := claimcheck.Open(t.Context(), v.Headers[penstock.HeaderClaimCheck], payload, payloads.Get)
		if err != nil {
			t.Error(err)
		}
		delete(v.Headers, penstock.HeaderClaimCheck)
		got = append(got, sinktest.Received{ID: v.ID, Key: v.Key, Topic: v.Topic, Headers: v.Headers, Payload: payload, CreatedAt: v.CreatedAt})
	}
	l.buf.Reset()
	return got
}

// recorder is a sink and a store: it notes in which order objects and messages come.
type recorder struct {
	claimcheck.Directory
	mu       sync.Mutex
	log      []string
	put      error
	puts     int
	refuse   func(m *penstock.Message) error
	sent     []penstock.Message
	inOrder  bool
	received chan penstock.Message
}

func (r *recorder) Put(ctx context.Context, o claimcheck.Object) (string, error) {
	url, err := r.Directory.Put(ctx, o)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.puts++
	r.log = append(r.log, fmt.Sprintf("object of %d bytes", len(o.Payload)))
	return url, errors.Join(err, r.put)
}

func (r *recorder) Send(_ context.Context, msgs []penstock.Message) []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := make([]error, len(msgs))
	for i := range msgs {
		r.log = append(r.log, "message "+msgs[i].ID)
		if r.refuse != nil {
			errs[i] = r.refuse(&msgs[i])
		}
		if errs[i] == nil {
			m := msgs[i]
			m.Headers = maps.Clone(m.Headers) // a format uses them again
			r.sent = append(r.sent, m)
			if r.received != nil {
				r.received <- m
			}
		}
	}
	return errs
}

func (r *recorder) KeepsOrder() bool            { return r.inOrder }
func (r *recorder) Close(context.Context) error { return nil }

// store is the recorder without the sink's Close.
type store struct{ *recorder }

func (store) Close() {}

func large(n int) []byte { return bytes.Repeat([]byte("x"), n) }

// The object is there before the message, under the same name each time. Its message has the reference, and others are as they were.
func TestWrap(t *testing.T) {
	r := &recorder{Directory: claimcheck.Directory(t.TempDir())}
	sink := claimcheck.Wrap(r, store{r}, "orders", 10)
	headers := map[string]string{"content-type": "text/plain", "note": "by hand"}
	msgs := []penstock.Message{{ID: "a", Payload: large(10), Headers: headers}, {ID: "b", Payload: large(11), Headers: headers}}
	for range 2 {
		if errs := sink.Send(t.Context(), msgs); errors.Join(errs...) != nil {
			t.Fatal(errs)
		}
	}
	if got := strings.Join(r.log, ", "); got != "object of 11 bytes, message a, message b, object of 11 bytes, message a, message b" {
		t.Error(got)
	}
	files, err := os.ReadDir(string(r.Directory))
	check(t, err)
	if len(files) != 1 {
		t.Errorf("%d files", len(files))
	}
	if m := r.sent[0]; string(m.Payload) != string(large(10)) || len(m.Headers) != 2 {
		t.Errorf("%+v", m)
	}
	reference := r.sent[1].Headers[penstock.HeaderClaimCheck]
	sum := sha256.Sum256(large(11))
	if want := fmt.Sprintf(`{"url":"file://%s/%s","bytes":11,"sha256":"%x","content_type":"text/plain"}`, r.Directory, files[0].Name(), sum); reference != want {
		t.Errorf("%s\n%s", reference, want)
	}
	if m := r.sent[1]; string(m.Payload) != `["penstock-claim-check",`+reference+`]` || m.Headers["note"] != "by hand" || m.Headers["content-type"] != "text/plain" || r.sent[3].Headers[penstock.HeaderClaimCheck] != reference {
		t.Errorf("%+v", m)
	}
	if len(headers) != 2 || string(msgs[1].Payload) != string(large(11)) {
		t.Error("the relay's message was changed")
	}
	// Each has a separate object: a message of the same id elsewhere cannot replace it.
	for _, other := range []struct {
		from string
		m    penstock.Message
	}{{"orders", penstock.Message{ID: "c", Payload: large(11)}}, {"bills", penstock.Message{ID: "b", Payload: large(11)}}, {"orders", penstock.Message{ID: "b", Payload: large(12)}}} {
		claimcheck.Wrap(r, store{r}, other.from, 10).Send(t.Context(), []penstock.Message{other.m})
	}
	if files, err = os.ReadDir(string(r.Directory)); len(files) != 4 {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// Without large payloads nothing is copied.
func TestSmallMessagesCostNothing(t *testing.T) {
	msgs := []penstock.Message{{ID: "a", Payload: large(10)}}
	var nothing nowhere
	sink := claimcheck.Wrap(nothing, claimcheck.Directory(t.TempDir()), "orders", 10)
	if n := testing.AllocsPerRun(100, func() { sink.Send(t.Context(), msgs) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

type nowhere struct{}

func (nowhere) Send(context.Context, []penstock.Message) []error { return nil }
func (nowhere) Close(context.Context) error                      { return nil }

// A message whose payload is not stored is not sent. In a sink that keeps order, neither is what follows of its key.
func TestNotStored(t *testing.T) {
	for _, inOrder := range []bool{true, false} {
		away := penstock.Unavailable(errors.New("away"))
		r := &recorder{Directory: claimcheck.Directory(t.TempDir()), put: away, inOrder: inOrder}
		sink := claimcheck.Wrap(r, store{r}, "orders", 10)
		errs := sink.Send(t.Context(), []penstock.Message{{ID: "a", Key: "1", Payload: large(11)}, {ID: "b", Key: "1"}, {ID: "c", Key: "2"}, {ID: "d"}, {ID: "e", Payload: large(11)}, {ID: "f"}})
		if !errors.Is(errs[0], away) || !penstock.IsUnavailable(errs[0]) || !penstock.IsUnavailable(errs[4]) || errs[2] != nil || errs[3] != nil || errs[5] != nil || (errs[1] != nil) != inOrder || penstock.IsUnavailable(errs[1]) {
			t.Errorf("%v: %v", inOrder, errs)
		}
		if want := map[bool]int{true: 3, false: 4}[inOrder]; len(r.sent) != want || sink.KeepsOrder() != inOrder {
			t.Errorf("%d were sent", len(r.sent))
		}
	}
}

// A consumer gets an error, and never another payload.
func TestOpen(t *testing.T) {
	r := &recorder{Directory: claimcheck.Directory(t.TempDir())}
	claimcheck.Wrap(r, store{r}, "orders", 10).Send(t.Context(), []penstock.Message{{ID: "a", Payload: large(11)}})
	reference := r.sent[0].Headers[penstock.HeaderClaimCheck]
	open := func(reference string) ([]byte, error) {
		return claimcheck.Open(t.Context(), reference, []byte("inline"), r.Get)
	}
	if payload, err := open(""); string(payload) != "inline" || err != nil {
		t.Errorf("without a reference: %q, %v", payload, err)
	}
	if payload, err := open(reference); string(payload) != string(large(11)) || err != nil {
		t.Errorf("%q, %v", payload, err)
	}
	var of claimcheck.Reference
	check(t, json.Unmarshal([]byte(reference), &of))
	name, err := of.Name()
	check(t, err)
	file := filepath.Join(string(r.Directory), name)
	for _, altered := range []string{"yxxxxxxxxxx", "xxxxxxxxxx", "xxxxxxxxxxxx", ""} {
		check(t, os.WriteFile(file, []byte(altered), 0o600))
		if payload, err := open(reference); !errors.Is(err, claimcheck.ErrAltered) || payload != nil {
			t.Errorf("%q: %q, %v", altered, payload, err)
		}
	}
	check(t, os.Remove(file))
	if _, err := open(reference); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	check(t, os.WriteFile(filepath.Join(string(r.Directory), "secret"), nil, 0o600))
	for _, bad := range []string{
		"{", `{"url":"file:///etc/passwd","bytes":1}`, `{"url":"s3://b/..","bytes":1}`, strings.Replace(reference, name, "secret", 1), strings.Replace(reference, `"bytes":11`, `"bytes":-1`, 1),
		strings.Replace(reference, `"bytes":11`, `"bytes":1000000000`, 1), strings.Replace(reference, name, strings.ToUpper(name), 1),
	} {
		if payload, err := open(bad); err == nil || payload != nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %q, %v", bad, payload, err)
		}
	}
}

// What arrives in each format.
func TestFormats(t *testing.T) {
	m := penstock.Message{ID: "1f/17", Key: "k", Topic: "orders.placed", Headers: map[string]string{"content-type": "text/xml"}, Payload: []byte("<order/>"), CreatedAt: time.Date(2026, 5, 4, 1, 2, 1, 0, time.UTC)}
	for _, c := range []struct {
		config  format.Config
		binding format.Binding
	}{
		{format.Config{Kind: format.CloudEvents, Mode: format.Structured}, kafka.Driver.Binding},
		{format.Config{Kind: format.CloudEvents, Mode: format.Structured}, sqs.Driver.Binding},
		{format.Config{Kind: format.CloudEvents}, kafka.Driver.Binding},
		{format.Config{Kind: format.Debezium}, kafka.Driver.Binding},
		{format.Config{}, kafka.Driver.Binding},
	} {
		r := &recorder{Directory: claimcheck.Directory(t.TempDir())}
		formatted, err := format.Wrap(r, c.config, c.binding)
		check(t, err)
		if errs := claimcheck.Wrap(formatted, store{r}, "orders", 1).Send(t.Context(), []penstock.Message{m}); errors.Join(errs...) != nil {
			t.Fatal(errs)
		}
		got := r.sent[0]
		reference := got.Headers[penstock.HeaderClaimCheck]
		if payload, err := claimcheck.Open(t.Context(), reference, got.Payload, r.Get); err != nil || string(payload) != "<order/>" {
			t.Errorf("%+v: %q, %v", c.config, payload, err)
		}
		var of claimcheck.Reference
		check(t, json.Unmarshal([]byte(reference), &of))
		switch want := `["penstock-claim-check",` + reference + `]`; {
		case c.config.Mode == format.Structured:
			var event map[string]any
			check(t, json.Unmarshal(got.Payload, &event))
			if _, data := event["data"]; data || event["data_base64"] != nil || event["dataref"] != of.URL || event["datacontenttype"] != "text/xml" {
				t.Errorf("%s", got.Payload)
			}
		case c.config.Kind == format.CloudEvents:
			if len(got.Payload) > 0 || got.Headers["ce_dataref"] != of.URL || got.Headers["content-type"] != "text/xml" {
				t.Errorf("%q, %v", got.Payload, got.Headers)
			}
		case string(got.Payload) != want || got.Headers["content-type"] != "text/xml":
			t.Errorf("%q, %v", got.Payload, got.Headers)
		}
	}
	// A producer's header of that name takes no data away.
	r := &recorder{}
	formatted, err := format.Wrap(r, format.Config{Kind: format.CloudEvents, Mode: format.Structured}, kafka.Driver.Binding)
	check(t, err)
	m.Headers[penstock.HeaderClaimCheck] = `{"url":"s3://elsewhere/x"}`
	formatted.Send(t.Context(), []penstock.Message{m})
	if text := string(r.sent[0].Payload); !strings.Contains(text, "data_base64") || strings.Contains(text, "dataref") {
		t.Error(text)
	}
}

// A message that was parked, or a dead letter, for longer than objects are kept: when it is sent again, its object is there.
func TestObjectIsWrittenAgain(t *testing.T) {
	ctx := t.Context()
	r := &recorder{Directory: claimcheck.Directory(t.TempDir()), received: make(chan penstock.Message)}
	refused := 0
	r.refuse = func(m *penstock.Message) error {
		if m.Headers[penstock.HeaderClaimCheck] == "" {
			return nil
		}
		files, err := filepath.Glob(filepath.Join(string(r.Directory), "*"))
		if err != nil || len(files) != 1 {
			return penstock.Permanent(fmt.Errorf("there are %d objects, %w", len(files), err))
		}
		if refused++; refused > 2 {
			return nil
		}
		check(t, os.Remove(files[0])) // as a rule would, before the next attempt
		return errors.New("refused")
	}
	db := sqlitetest.New(t)
	check(t, db.CreateOutbox(ctx, "orders"))
	check(t, db.Publish(ctx, "orders", penstock.Message{Key: "k", Payload: large(100)}, penstock.Message{Key: "k", Payload: []byte("small")}))
	pump, err := relay.New(db, "orders", "s", claimcheck.Wrap(r, store{r}, "orders", 10), relay.Options{MaxAttempts: 2, OnDead: relay.OnDeadHold, Limits: relay.Limits{ParkAfter: 1, RetryMin: time.Millisecond, RetryMax: time.Millisecond}, Logger: slog.New(slog.DiscardHandler)})
	check(t, err)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- pump.Run(running) }()
	defer func() {
		stop()
		<-ended
	}()
	query := admin.DeadLetterQuery{Outbox: "orders", Subscription: "s"}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		letters, err := db.DeadLetters(ctx, query)
		if err != nil && !errors.Is(err, penstock.ErrNoSubscription) {
			t.Fatal(err)
		}
		if len(letters) == 1 {
			if all := letters[0].Failures; len(all) != 2 || all[1].Err != "refused" {
				t.Fatalf("%+v", all)
			}
			break
		}
	}
	if files, _ := os.ReadDir(string(r.Directory)); len(files) != 0 || r.puts != 2 {
		t.Fatalf("%d files, %d puts", len(files), r.puts)
	}
	n, err := db.RetryDeadLetters(ctx, query)
	check(t, err)
	if n != 1 {
		t.Fatalf("%d sent back", n)
	}
	for _, want := range []string{string(large(100)), "small"} { // in the order of the key
		m := <-r.received
		payload, err := claimcheck.Open(ctx, m.Headers[penstock.HeaderClaimCheck], m.Payload, r.Get)
		if err != nil || string(payload) != want {
			t.Errorf("%d bytes, %v", len(payload), err)
		}
	}
}

// The documented command deletes old files and no others, and also those of a relay that was killed while it wrote.
func TestDocumentedFind(t *testing.T) {
	dir := t.TempDir()
	for name, age := range map[string]int{"old": 17, ".new-1": 17, "young": 14} {
		file := filepath.Join(dir, name)
		check(t, os.WriteFile(file, nil, 0o600))
		check(t, os.Chtimes(file, time.Time{}, time.Now().AddDate(0, 0, -age)))
	}
	ran := false
	for _, block := range docblock.Of(t, "docs/guides/relaying.md", "text") {
		for line := range strings.Lines(block) {
			if strings.HasPrefix(line, "find /srv/payloads ") {
				ran = true
				out, err := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(line, "/srv/payloads", dir, 1)).CombinedOutput()
				if err != nil {
					t.Fatalf("%s%v", out, err)
				}
			}
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || !ran || len(left) != 1 || left[0].Name() != "young" {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A directory that is not there is an outage that has the next step.
func TestDirectoryAway(t *testing.T) {
	away := claimcheck.Directory(filepath.Join(t.TempDir(), "not there"))
	_, err := away.Put(t.Context(), claimcheck.Object{Name: "a"})
	_, reached := away.Reach(t.Context())
	for _, err := range []error{err, reached} {
		if !penstock.IsUnavailable(err) || !strings.Contains(err.Error(), "create the directory") {
			t.Error(err)
		}
	}
	if warning, err := claimcheck.Directory(t.TempDir()).Reach(t.Context()); warning != "" || err != nil {
		t.Error(warning, err)
	}
}

func TestParseURL(t *testing.T) {
	for text, want := range map[string]claimcheck.Config{
		"s3://payloads":                                {Bucket: "payloads"},
		"s3://payloads/from/orders?region=eu-1":        {Bucket: "payloads", Prefix: "from/orders/", Region: "eu-1"},
		"s3://payloads/?endpoint=https://h&timeout=5s": {Bucket: "payloads", Endpoint: "https://h", Timeout: 5 * time.Second},
		"file:///srv/pay%20loads?max_inline_bytes=9":   {Directory: "/srv/pay loads", MaxInlineBytes: 9},
	} {
		want.SetDefaults()
		if got, err := claimcheck.ParseURL(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                                        "write s3://BUCKET/PREFIX or file:///DIRECTORY",
		"gs://payloads":                           "write s3://BUCKET/PREFIX or file:///DIRECTORY",
		"s3://key:secret@payloads":                "write s3://BUCKET/PREFIX or file:///DIRECTORY",
		"file://host/srv":                         "write s3://BUCKET/PREFIX or file:///DIRECTORY",
		"s3://":                                   "bucket is missing",
		"s3://Payloads":                           "bucket is not a bucket's name",
		"s3://payloads/a//b":                      "prefix cannot be used",
		"s3://payloads/a%20b":                     "prefix cannot be used",
		"s3://payloads?nope=1":                    "nope is not a parameter of a claim check",
		"s3://payloads?max_inline_bytes=-1":       `max_inline_bytes is "-1", which is negative`,
		"s3://payloads?timeout=-1s":               "timeout is negative",
		"s3://payloads?allow_private=true":        "allow_private is set without endpoint",
		"s3://payloads?endpoint=http://127.0.0.1": "loopback",
		"file:///srv?region=eu-1":                 "directory is given together with settings of a bucket",
	} {
		if _, err := claimcheck.ParseURL(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
	}
	both := claimcheck.Config{Bucket: "payloads", Directory: "/srv", MaxInlineBytes: 1}
	relative := claimcheck.Config{Directory: "srv", MaxInlineBytes: 1}
	if err := both.Validate(); err == nil || relative.Validate() == nil {
		t.Error(err)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
