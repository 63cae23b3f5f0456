package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/terminal"
)

// Each job is a signed request, and the answer decides how the job ends.
func TestAnswerIsTheVerdict(t *testing.T) {
	const key = "a secret of at least 24 bytes"
	secret := base64.StdEncoding.EncodeToString([]byte(key))
	t.Setenv("PENSTOCK_HTTP_SECRETS", secret)
	var mu sync.Mutex
	seen := map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		id := r.Header.Get("Webhook-Id")
		mac := hmac.New(sha256.New, []byte(key))
		fmt.Fprintf(mac, "%s.%s.%s", id, r.Header.Get("Webhook-Timestamp"), body)
		if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Header.Get("Webhook-Signature") != want {
			t.Errorf("%s is signed with %q, want %q", body, r.Header.Get("Webhook-Signature"), want)
		}
		mu.Lock()
		seen[string(body)] = id + " " + r.Header.Get("Kind")
		mu.Unlock()
		var status int
		_, _ = fmt.Sscan(string(body), &status)
		if status == 503 {
			w.Header().Set("Retry-After", "3600")
		}
		w.WriteHeader(status)
	}))
	defer server.Close()
	d := urlDesk(t, sqliteFile(t))
	d.must("queue", "create", "mails")
	ids, err := d.queues().DriverQueue("mails").Enqueue(t.Context(), penstock.NewJob{Payload: []byte("200"), Headers: map[string]string{"Kind": "k"}})
	if err != nil {
		t.Fatal(err)
	}
	d.jobs("mails", "204", "400", "410", "429", "500", "503")
	o := d.work("mails", nothingToDo, "--http", server.URL+"/hook?token=tell-nobody#allow_private=true", "--concurrency", "2", "--timeout", "1m")
	if o.code != terminal.ExitOK || !strings.Contains(o.stderr, "done=2 failed=3 dead=2 lost=0") || strings.Contains(o.stderr, "tell-nobody") || strings.Contains(o.stderr, secret) {
		t.Errorf("exit code %d: %s", o.code, o.stderr)
	}
	same(t, "the request", seen["200"], fmt.Sprintf("mails-%d k", ids[0].ID))
	dead := d.deadErrors("mails")
	if len(dead) != 2 || !strings.Contains(dead["400"], "400") || !strings.Contains(dead["410"], "410") {
		t.Errorf("the dead letters are %q, want 400 and 410", dead)
	}
	same(t, "tried again later, the rest done", fmt.Sprint(d.queue("mails").Delayed), "3")
}

// An endpoint that has too many requests, and says for how long, gets none of the job's group for that time. No attempt is spent.
func TestEndpointThatHasTooMany(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if seen[string(body)]++; string(body) == "busy" {
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	d := urlDesk(t, sqliteFile(t))
	d.must("queue", "create", "mails", "--max-attempts", "1")
	q := d.queues().DriverQueue("mails")
	if _, err := q.Enqueue(t.Context(), penstock.NewJob{Group: "busy", Payload: []byte("busy")}, penstock.NewJob{Group: "calm", Payload: []byte("calm")}); err != nil {
		t.Fatal(err)
	}
	o := d.work("mails", func(s *admin.QueueStatus) bool { return s.Ready == 1 && s.Running == 0 }, "--http", server.URL+"#allow_private=true", "--all-groups", "--concurrency", "1")
	mu.Lock()
	defer mu.Unlock()
	groups, err := d.queues().QueueGroups(t.Context(), "mails", "", 10)
	if err != nil || o.code != terminal.ExitOK || len(groups) != 1 || groups[0].Group != "busy" || groups[0].Limits == nil || !strings.Contains(groups[0].Limits.Reason, "429") || seen["busy"] != 1 || seen["calm"] != 1 {
		t.Errorf("exit code %d, %v requests, the groups are %+v, %v: %s", o.code, seen, groups, err, o.stderr)
	}
}

// An endpoint that is down spends no attempt of a job.
func TestEndpointThatIsDown(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	d := urlDesk(t, sqliteFile(t))
	d.must("queue", "create", "mails", "--max-attempts", "1")
	d.jobs("mails", "x")
	o := d.work("mails", func(q *admin.QueueStatus) bool { return q.Delayed+q.DeadLetters > 0 }, "--http", server.URL+"#allow_private=true")
	if q := d.queue("mails"); o.code != terminal.ExitOK || q.Delayed != 1 {
		t.Errorf("exit code %d, %+v: %s", o.code, q, o.stderr)
	}
}

func TestWorkHTTPUsage(t *testing.T) {
	d := urlDesk(t, sqliteFile(t))
	d.must("queue", "create", "mails")
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"work", "mails"}, "--exec is missing"},
		{[]string{"work", "mails", "--exec", "true", "--http", "https://example.com"}, "leave one of them out"},
		{[]string{"work", "mails", "--http", "https://example.com#secrets=x"}, "secrets cannot be given in a URL"},
		{[]string{"work", "mails", "--http", "ftp://example.com/?token=tell-nobody"}, "--http: url"},
	} {
		o := d.run(false, "", c.args...)
		if o.code != terminal.ExitUsage || !strings.Contains(o.stderr, c.says) || strings.Contains(o.stderr, "tell-nobody") {
			t.Errorf("%q: exit code %d: %s", c.args, o.code, o.stderr)
		}
	}
}
