package work_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/work"
)

// A payload that does not decode is dead at once, with the reason. For others, the handler decides as usual.
func TestWorkJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(0)
		for i, payload := range []string{`{"to": "ann"}`, `{"to": 1}`, ``, `{"to": "bob"}`} {
			q.waiting = append(q.waiting, penstock.Job{ID: int64(i + 1), Payload: []byte(payload)})
		}
		_, stop := begin(t, q, work.JSON(func(_ context.Context, m struct{ To string }, job penstock.Job) error {
			if m.To == "bob" {
				return errors.New("no such mailbox")
			}
			if m.To != "ann" || job.ID != 1 {
				t.Errorf("got %+v of job %d", m, job.ID)
			}
			return nil
		}), work.Options{Concurrency: 1})
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(q.dead) != 2 || !strings.Contains(q.dead[0], "reading the payload: json: cannot unmarshal number") || !strings.Contains(q.dead[1], "unexpected end of JSON input") {
			t.Errorf("dead: %q", q.dead)
		}
		if !slices.Equal(q.done, []string{`{"to": "ann"}`}) || len(q.retried) != 1 || !strings.Contains(q.retried[0], "no such mailbox") {
			t.Errorf("done %q, retried %q", q.done, q.retried)
		}
	})
}
