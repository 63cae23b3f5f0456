package measure

import (
	"testing"
	"time"
)

func TestWebhook(t *testing.T) {
	s := small(t, "")
	r, err := Webhook(t.Context(), WebhookConfig{Setup: s, Messages: 300, Payload: 200, Keys: 30, Delay: time.Millisecond, Repeat: 2})
	if err != nil {
		t.Fatal(err)
	}
	if r.Client <= 0 || r.Relay <= 0 || len(r.Ratios) != 2 || r.Ratio <= 0 || r.Limit != 30_000 || r.Check != (Check{By: "endpoint"}) {
		t.Errorf("got %+v", r)
	}
	checkOutboxesGone(t, s)
}
