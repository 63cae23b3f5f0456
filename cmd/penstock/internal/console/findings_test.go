package console_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"net/http/httptest"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/test/sqlitetest"
)

// plain is a minimal database that a console accepts.
type plain struct{ console.Store }

func (p plain) StatusUpTo(ctx context.Context, _ int) ([]admin.OutboxStatus, error) {
	return p.Store.Status(ctx)
}

func (p plain) QueueStatusUpTo(ctx context.Context, _ int, names ...string) ([]admin.QueueStatus, error) {
	return p.Store.QueueStatus(ctx, names...)
}

// Findings exist at the first visit and are at most half a minute old while a page is open, though the doctor takes a while. A client
// that does not want to wait for that checks at once. They link to their subjects.
func TestFindingsAreYoung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sqlitetest.New(t)
		must(t, s.CreateQueue(t.Context(), "mails", penstock.FIFO))
		defer time.Sleep(time.Minute) // a look that is under way ends within the test
		var looks atomic.Int32
		took := 2 * time.Second
		c := console.New(console.Options{Store: plain{s}, Findings: func(context.Context) ([]doctor.Finding, error) {
			time.Sleep(took)
			looks.Add(1)
			return []doctor.Finding{{Check: "queue", Severity: doctor.Warning, About: "mails", Found: "its jobs are late"}}, nil
		}})
		ask := func(method, path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			c.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
			return w
		}
		page := func() (text string, age time.Duration) {
			t.Helper()
			text = ask("GET", "/").Body.String()
			_, rest, told := strings.Cut(text, `id="looked">as of `)
			if !told {
				t.Fatalf("the page does not say when was looked:\n%s", text)
			}
			said, _, _ := strings.Cut(rest, "</")
			if said = strings.TrimSuffix(said, " ago"); said == "now" {
				return text, 0
			}
			age, err := time.ParseDuration(strings.ReplaceAll(said, " ", ""))
			must(t, err)
			return text, age
		}
		if text, _ := page(); !strings.Contains(text, "its jobs are late") || !strings.Contains(text, `<a href="/queues/mails">mails</a>`) {
			t.Errorf("at the first visit there are no findings, or no link to what they are about:\n%s", text)
		}
		for _, took = range []time.Duration{2 * time.Second, 12 * time.Second} {
			for range 100 { // as a page asks
				time.Sleep(2 * time.Second)
				if _, age := page(); age > 30*time.Second {
					t.Fatalf("with looks of %s findings are %s old", took, age)
				}
			}
		}
		time.Sleep(time.Hour)
		took = 2 * time.Second
		if _, age := page(); age > 30*time.Second {
			t.Errorf("after an hour findings are %s old", age)
		}
		time.Sleep(time.Hour)
		took = 20 * time.Second // the API waits for the doctor
		before := looks.Load()
		if w := ask("GET", "/api/v1/findings"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "its jobs are late") || looks.Load() != before+1 {
			t.Errorf("a slow doctor has the API answer %d %s, after %d looks", w.Code, w.Body, looks.Load()-before)
		}
		took = 2 * time.Second
		time.Sleep(10 * time.Second)
		before = looks.Load()
		if w := ask("POST", "/check"); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/" {
			t.Errorf("to check now is %d to %q", w.Code, w.Header().Get("Location"))
		}
		if _, age := page(); age > time.Second || looks.Load() != before+1 {
			t.Errorf("after a check findings are %s old, of %d looks", age, looks.Load()-before)
		}
	})
}
