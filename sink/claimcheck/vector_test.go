package claimcheck_test

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/claimcheck"
)

// vector is the file with which the tests of all clients open a message.
const vector = "../../clients/conformance/claim_check.json"

// elsewhere is a store whose URLs are always the same.
type elsewhere struct{ store }

func (elsewhere) Put(_ context.Context, o claimcheck.Object) (string, error) {
	return "s3://payloads/orders/" + o.Name, nil
}

// The clients' reference is the one that Wrap makes.
func TestVector(t *testing.T) {
	text, err := os.ReadFile(vector)
	check(t, err)
	var v struct{ Payload, Reference, Body string }
	check(t, json.Unmarshal(text, &v))
	r := &recorder{}
	m := penstock.Message{ID: "1f/17", Headers: map[string]string{"content-type": `text/plain; a="b"`}, Payload: []byte(v.Payload)}
	if errs := claimcheck.Wrap(r, elsewhere{store{r}}, "orders", 1).Send(t.Context(), []penstock.Message{m}); len(errs) > 0 && errs[0] != nil {
		t.Fatal(errs)
	}
	if got := r.sent[0]; got.Headers[penstock.HeaderClaimCheck] != v.Reference || string(got.Payload) != v.Body {
		t.Errorf("%s has another reference than\n%s\n%s", vector, got.Headers[penstock.HeaderClaimCheck], got.Payload)
	}
}
