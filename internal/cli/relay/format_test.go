package relay

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/penstock/penstock"
)

// The predecessor's id is there when the message gets its format, which can hand it on.
func TestPreviousComesBeforeTheFormat(t *testing.T) {
	var got []http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Header) }))
	defer server.Close()
	t.Chdir(t.TempDir())
	jobs, err := parsed(t, "--outbox", "orders", "--sink", server.URL+"/#allow_private=true", "--previous", "--format", "cloudevents?extensions.predecessor={header.penstock-previous}")
	if err != nil {
		t.Fatal(err)
	}
	sink, err := jobs[0].openSink(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer closeSink(t.Context(), sink, slog.New(slog.DiscardHandler))
	for i := range 2 {
		m := penstock.Message{ID: fmt.Sprintf("m%d", i+1), Seq: int64(i + 1), Key: "k", Topic: "orders.paid", Payload: []byte(`{}`)}
		for _, err := range sink.Send(t.Context(), []penstock.Message{m}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(got) != 2 || got[0].Get("ce-id") != "m1" || got[0].Get("ce-predecessor") != "" || got[1].Get("ce-predecessor") != "m1" || got[1].Get("ce-source") != "/penstock/orders" {
		t.Errorf("got %v", got)
	}
}
