package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/web"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/sqlite"
)

// store is filled by tests and shown by a console.
type store interface {
	driver.Store
	driver.QueueStore
	driver.InboxStore
	console.Store
}

func eachStore(t *testing.T, test func(t *testing.T, s store)) {
	migrated := func(t *testing.T, s store, err error) store {
		if err == nil {
			err = s.Migrate(t.Context())
		}
		must(t, err)
		t.Cleanup(func() { s.Close() })
		return s
	}
	t.Run("sqlite", func(t *testing.T) {
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"), sqlite.Options{})
		test(t, migrated(t, s, err))
	})
	t.Run("postgres", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), postgrestest.Database(t), postgres.Options{})
		test(t, migrated(t, s, err))
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// desk is a served console, with a role of each kind.
type desk struct {
	*testing.T
	store
	url   string
	log   *bytes.Buffer
	asked chan struct{} // a value for each request that has arrived, if there is room
}

func serve(t *testing.T, s store) *desk { return serveWith(t, s, func(*console.Options) {}) }

func serveWith(t *testing.T, s store, with func(*console.Options)) *desk {
	d := &desk{T: t, store: s, log: &bytes.Buffer{}, asked: make(chan struct{}, 20)}
	o := console.Options{Store: s, Redact: []string{"password"}, Logger: slog.New(slog.NewTextHandler(d.log, nil)), BasePath: "/ops/",
		Findings: func(context.Context) ([]doctor.Finding, error) {
			return []doctor.Finding{{Check: "relay", Severity: doctor.Critical, About: "orders/billing", Found: "nobody relays it", Why: "messages wait", Next: "penstock relay"}}, nil
		}}
	with(&o)
	c := console.New(o)
	go c.Watch(t.Context())
	server, err := web.Serve(web.Options{Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler), Credentials: []web.Credential{
		{Secret: "r", Name: console.RoleRead}, {Secret: "o", Name: console.RoleOperate},
		{User: "read", Secret: "r", Name: console.RoleRead}, {User: "operate", Secret: "o", Name: console.RoleOperate}}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case d.asked <- struct{}{}:
		default:
		}
		c.ServeHTTP(w, r)
	}))
	must(t, err)
	t.Cleanup(func() { server.Close() })
	d.url = "http://" + server.Addr + "/ops"
	return d
}

// ask sends a request with a token and returns the code and the answer.
func (d *desk) ask(token, method, path, body string) (int, []byte) {
	d.Helper()
	r, err := http.NewRequestWithContext(d.Context(), method, d.url+path, strings.NewReader(body))
	must(d.T, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if method == "POST" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := http.DefaultClient.Do(r)
	must(d.T, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(d.T, err)
	return answer.StatusCode, text
}

// fill creates an outbox with a dead letter and a parked key, and a queue with dead letters, jobs and a
// schedule.
func fill(t *testing.T, s store) {
	ctx := t.Context()
	must(t, s.CreateOutbox(ctx, "orders"))
	must(t, s.CreateQueue(ctx, "mails", penstock.FIFO))
	must(t, s.CreateInbox(ctx, "billing", 0))
	must(t, s.SetSchedule(ctx, penstock.Schedule{Queue: "mails", Name: "report", Cron: "@daily"}))
	source, err := s.Subscribe(ctx, driver.Subscribe{Outbox: "orders", Subscription: "billing", Holder: "relay-1"})
	must(t, err)
	must(t, s.Publish(ctx, "orders", penstock.Message{Key: "ann", Topic: "order.placed", Payload: []byte(`{"total": 10, "password": "hunter2"}`)},
		penstock.Message{Key: "bob", Topic: "order.placed", Payload: []byte("\xff\x00")}))
	var batch driver.Batch
	for len(batch.Messages) == 0 {
		batch, err = source.Fetch(ctx, driver.Limit{Messages: 10, Bytes: 1 << 20})
		must(t, err)
	}
	failure := []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "no route for 17"}}
	must(t, storetest.Settle(ctx, source, driver.Settled{Batch: batch, Verdicts: []driver.Verdict{{Outcome: driver.Dead, Failures: failure}, {Outcome: driver.Parked, Failures: failure, RetryIn: time.Hour}}}))
	must(t, source.Close(ctx))
	deadJobs(t, s, 30)
	if _, keeps := s.(driver.HistoryStore); keeps {
		doneJob(t, s)
	}
	_, err = s.DriverQueue("mails").Enqueue(ctx, penstock.NewJob{Group: "g", Payload: []byte("waits")}, penstock.NewJob{Group: "g", Payload: []byte("waits, too")})
	must(t, err)
}

// The document describes every served route, and every answer matches the document.
func TestDocument(t *testing.T) {
	document := console.Document()
	if os.Getenv("PENSTOCK_OPENAPI") != "" {
		must(t, os.WriteFile("openapi.json", document, 0o644))
	}
	file, err := os.ReadFile("openapi.json")
	must(t, err)
	if !bytes.Equal(file, document) {
		t.Error("openapi.json is not what is served: run PENSTOCK_OPENAPI=1 go test ./cmd/penstock/internal/console -run TestDocument")
	}
}

func TestAnswersAreAsTheDocumentSays(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		fill(t, s)
		d := serveWith(t, s, func(o *console.Options) {
			o.Adopted = []console.Adopted{{Table: "orders", Subscription: "billing", Store: asTable{s}}}
		})
		code, text := d.ask("r", "GET", "/api/v1/openapi.json", "")
		var document struct {
			OpenAPI string
			Paths   map[string]map[string]struct {
				RequestBody *json.RawMessage
				Responses   map[string]struct {
					Content map[string]struct{ Schema schema }
				}
			}
			Components struct{ Schemas map[string]schema }
		}
		must(t, json.Unmarshal(text, &document))
		if code != 200 || document.OpenAPI != "3.1.0" || len(document.Paths) < 15 {
			t.Fatalf("the document: %d, %d paths", code, len(document.Paths))
		}
		names := strings.NewReplacer("{outbox}", "orders", "{subscription}", "billing", "{queue}", "mails", "{consumer}", "billing", "{table}", "orders")
		for path, methods := range document.Paths {
			for method, operation := range methods {
				body, token := "", "r"
				if operation.RequestBody != nil {
					body, token = `{}`, "o"
					switch filepath.Base(path) {
					case "retry", "discard":
						body = `{"dry_run": true}`
						switch {
						case strings.Contains(path, "parked"):
							body = `{}`
						case strings.HasSuffix(path, "{queue}/retry"):
							body = `{"ids": [1000]}`
						case strings.Contains(path, "{table}"):
							body = `{"numbers": [1000]}` // there is none
						}
					case "replay":
						body = `{"from_seq": 1}`
					case "resend":
						number := int64(1)
						if strings.Contains(path, "{outbox}") {
							number = firstDead(t, s)
						}
						body = fmt.Sprintf(`{"numbers": [%d]}`, number)
					case "pause", "resume", "run":
						body = `{"name": "report"}`
					case "cancel":
						body = `{"ids": [1]}`
					case "give-up":
						body = `{"number": 1000, "reason": "wrong address"}` // there is none
					}
				}
				query := ""
				if name := filepath.Base(path); name == "messages" || name == "jobs" {
					if _, finds := s.(*postgres.Store); !finds {
						continue
					}
					query = "?key=bob"
				}
				code, text := d.ask(token, strings.ToUpper(method), "/api/v1"+names.Replace(path)+query, body)
				var answer any
				must(t, json.Unmarshal(text, &answer))
				if code != 200 {
					t.Errorf("%s %s: %d %s", method, path, code, text)
					continue
				}
				of := operation.Responses["200"].Content["application/json"].Schema
				for _, wrong := range of.check(document.Components.Schemas, "", answer) {
					t.Errorf("%s %s: %s in %s", method, path, wrong, text)
				}
				if operation.RequestBody != nil {
					if code, _ := d.ask("r", strings.ToUpper(method), "/api/v1"+names.Replace(path), body); code != http.StatusForbidden {
						t.Errorf("%s %s by who may only read: %d", method, path, code)
					}
				}
			}
		}
	})
}

// asTable has the subscription of an outbox stand for one of an adopted table. TestAdoptedTables has a real one.
type asTable struct{ store }

func (a asTable) Status(ctx context.Context) (admin.SubscriptionStatus, error) {
	all, err := a.store.Status(ctx)
	if err != nil {
		return admin.SubscriptionStatus{}, err
	}
	return all[0].Subscriptions[0], nil
}

func (a asTable) of(q admin.DeadLetterQuery) admin.DeadLetterQuery {
	q.Outbox, q.Subscription = "orders", "billing"
	return q
}

func (a asTable) DeadLetters(ctx context.Context, q admin.DeadLetterQuery) ([]admin.DeadLetter, error) {
	return a.store.DeadLetters(ctx, a.of(q))
}

func (a asTable) RetryDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error) {
	return a.store.RetryDeadLetters(ctx, a.of(q))
}

func (a asTable) DiscardDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error) {
	return a.store.DiscardDeadLetters(ctx, a.of(q))
}

func (a asTable) ParkedKeys(ctx context.Context, limit int) ([]admin.ParkedKey, error) {
	return a.store.ParkedKeys(ctx, "orders", "billing", limit)
}

func (a asTable) RetryParked(ctx context.Context, keys ...string) (int, error) {
	return a.store.RetryParked(ctx, "orders", "billing", keys...)
}

// schema is the part of JSON Schema that the document uses.
type schema struct {
	Ref                  string `json:"$ref"`
	Type                 string
	Properties           map[string]schema
	Required             []string
	Items                *schema
	AdditionalProperties json.RawMessage
}

func (s schema) check(all map[string]schema, at string, v any) (wrong []string) {
	if s.Ref != "" {
		return all[filepath.Base(s.Ref)].check(all, at, v)
	}
	if s.Type == "" {
		return nil // any JSON
	}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range s.Required {
			if _, there := v[name]; !there {
				wrong = append(wrong, at+" lacks "+name)
			}
		}
		for name, member := range v {
			of, known := s.Properties[name]
			switch {
			case known:
				wrong = append(wrong, of.check(all, at+"/"+name, member)...)
			case string(s.AdditionalProperties) == "false":
				wrong = append(wrong, at+" has "+name)
			}
		}
	case []any:
		for _, item := range v {
			if s.Items != nil {
				wrong = append(wrong, s.Items.check(all, at+"[]", item)...)
			}
		}
	}
	is := map[bool]string{true: s.Type}[s.Type != ""]
	if got := kindOf(v); got != is && !(got == "integer" && is == "number") {
		wrong = append(wrong, fmt.Sprintf("%s is %s, not %s", at, got, is))
	}
	return wrong
}

func kindOf(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64:
		if v == float64(int64(v)) {
			return "integer"
		}
		return "number"
	}
	return "null"
}

func TestWhoIsRefused(t *testing.T) {
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"), sqlite.Options{})
	must(t, err)
	must(t, s.Migrate(t.Context()))
	t.Cleanup(func() { s.Close() })
	fill(t, s)
	d := serve(t, s)
	for _, one := range []struct {
		token, method, path, body string
		want                      int
	}{
		{"", "GET", "/", "", 401},
		{"", "GET", "/static/app.js", "", 401},
		{"wrong", "GET", "/api/v1/status", "", 401},
		{"r", "GET", "/api/v1/status", "", 200},
		{"r", "POST", "/api/v1/queues/mails/cancel", `{"ids":[1]}`, 403},
		{"r", "GET", "/api/v1/nothing", "", 404},
		{"r", "GET", "/api/v1/queues/none/dead", "", 404},
		{"r", "GET", "/api/v1/queues/mails/dead?limit=0", "", 400},
		{"r", "GET", "/api/v1/queues/mails/dead?number=x", "", 400},
		{"r", "GET", "/api/v1/queues/mails/dead?died_before=x", "", 400},
		{"o", "POST", "/api/v1/queues/mails/dead/retry", `{"eror":"x"}`, 400},
		{"o", "POST", "/api/v1/queues/mails/dead/retry", `{`, 400},
		{"r", "POST", "/api/v1/queues/mails/schedules/run", `{"name":"report"}`, 403},
		{"o", "POST", "/api/v1/queues/mails/schedules/run", `{"name":"none"}`, 404},
	} {
		code, text := d.ask(one.token, one.method, one.path, one.body)
		if code != one.want || strings.HasPrefix(one.path, "/api") && code != 401 && !json.Valid(text) {
			t.Errorf("%s %s with %q: %d %s, want %d", one.method, one.path, one.token, code, text, one.want)
		}
	}
	for body, want := range map[string]string{
		`{"numbers":["14"]}`: "numbers cannot be a JSON string",
		`[14]`:               "body cannot be a JSON array",
		`{"eror":"x"}`:       `body unknown field \"eror\"`,
	} {
		_, text := d.ask("o", "POST", "/api/v1/queues/mails/dead/retry", body)
		if !strings.HasPrefix(string(text), `{"error":"`+want+": GET ") {
			t.Errorf("%s: %s, want %s", body, text, want)
		}
	}
	if status, err := s.QueueStatus(t.Context()); err != nil || status[0].DeadLetters != 30 || !slices.Contains([]int64{2, 3}, status[0].Ready) {
		t.Errorf("a refused request has changed the queue: %+v, %v", status, err)
	}
}
