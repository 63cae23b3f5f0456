package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// Relay must keep up with relay.Options.
func TestRelayHasEveryLimit(t *testing.T) {
	mine := reflect.TypeFor[Relay]()
	for _, f := range reflect.VisibleFields(reflect.TypeFor[relay.Options]()) {
		switch f.Type.Kind() {
		case reflect.Int, reflect.Int64, reflect.Bool, reflect.Float64, reflect.String:
			if _, ok := mine.FieldByName(f.Name); !ok && f.Name != "Holder" && f.Name != "Start" { // identity and start of the relay, no limits
				t.Errorf("relay.Options.%s cannot be set in the file", f.Name)
			}
		}
	}
	r := Relay{Limits: relay.Limits{Lease: time.Minute, MaxBatch: 7}, OnDead: OnDead(relay.OnDeadHold), MaxAge: Age(time.Hour), MaxAttempts: unlimited}
	r.SetDefaults()
	rc := r.Options()
	if rc.Lease != time.Minute || rc.MaxBatch != 7 || rc.Senders == 0 || rc.OnDead != relay.OnDeadHold || rc.MaxAge != time.Hour || rc.MaxAttempts >= 0 {
		t.Errorf("%+v", rc)
	}
}

// The relay gets the values of the file.
func TestNoLimitIsNoLimit(t *testing.T) {
	c := load(t, "relay: {max_age: unlimited, max_attempts: unlimited}\n"+small)
	if rc := c.Relay.Options(); rc.MaxAge != 0 || rc.MaxAttempts >= 0 {
		t.Errorf("got %v, %d attempts", rc.MaxAge, rc.MaxAttempts)
	}
	if rc := load(t, small).Relay.Options(); rc.MaxAge != 0 || rc.MaxAttempts != 25 {
		t.Errorf("by default: %v, %d attempts", rc.MaxAge, rc.MaxAttempts)
	}
}

// Each limit of a subscription comes from the subscription, else from the top level, else it is
// the default, wherever the top level is in the file.
func TestLimitsOfASubscription(t *testing.T) {
	c := load(t, strings.Replace(small, "sink: stdout", "sink: stdout, relay: {senders: 2, max_age: unlimited, poll_min: 1s}", 1)+
		"- {name: c, outbox: b, sink: stdout}\nrelay: {senders: 5, max_batch: 6, max_age: 1h}\n")
	mine, others := c.Subscriptions[0].Relay.Options(), c.Subscriptions[1].Relay.Options()
	for _, tc := range []struct {
		what      string
		got, want any
	}{
		{"own", mine.Senders, 2},
		{"own, none", mine.MaxAge, time.Duration(0)},
		{"the top level's", mine.MaxBatch, 6},
		{"the default", mine.ParkAfter, 3},
		{"the default beside one's own", mine.PollMax, time.Second},
		{"the top level's for another", others.Senders, 5},
		{"and there", others.MaxAge, time.Hour},
		{"the default for another", others.PollMax, 50 * time.Millisecond},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.what, tc.got, tc.want)
		}
	}
}

// Every limit can be set for a subscription alone, and printed.
func TestEveryLimitOfASubscription(t *testing.T) {
	base := load(t, small)
	for i, f := range fieldsOf(reflect.ValueOf(&Relay{}).Elem()) {
		key, value := f.key, "7m"
		switch f.value.Type() {
		case reflect.TypeFor[int](), reflect.TypeFor[Attempts]():
			value = "7"
		case reflect.TypeFor[OnDead]():
			value = "hold"
		}
		text := strings.Replace(small, "sink: stdout", fmt.Sprintf("sink: stdout, relay: {rate: 9, poll_max: 9m, retry_max: 9m, %s: %s}", key, value), 1)
		text = strings.Replace(strings.Replace(text, key+": 9m, ", "", 1), key+": 9, ", "", 1)
		c := load(t, text)
		if c.Relay != base.Relay {
			t.Errorf("%s of a subscription changed the top level", key)
		}
		same := c.Subscriptions[0].Relay.except(base.Relay)
		got := fieldsOf(reflect.ValueOf(same))[i].value
		if got.IsZero() {
			t.Errorf("%s: %s is not set", key, value)
		}
		out, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var printed struct {
			Subscriptions []struct{ Relay map[string]any }
		}
		if err := json.Unmarshal(out, &printed); err != nil {
			t.Fatal(err)
		}
		if shown := strings.TrimSuffix(fmt.Sprint(printed.Subscriptions[0].Relay[key]), "B"); shown != value {
			t.Errorf("%s: %s is printed as %s", key, value, shown)
		}
	}
}

// A filter in the file means the same as the relay's filter. Tests of penstock.Filter cover the
// matching itself.
func TestFilter(t *testing.T) {
	c := load(t, readTestFile(t, "limits.good.yaml"))
	f := c.Subscriptions[2].Filter
	if want := []string{"orders.*.placed", "*.cancelled", "bills.>"}; !reflect.DeepEqual(f.Topics, want) {
		t.Errorf("topics %q", f.Topics)
	}
	if want := map[string]string{"region": "eu", "tenant id": "*", "price": "5$", "token": "hunter2", "1": "2"}; !reflect.DeepEqual(f.Headers, want) {
		t.Errorf("headers %q", f.Headers)
	}
	for _, i := range []int{0, 4} {
		if f := c.Subscriptions[i].Filter; !f.Empty() {
			t.Errorf("a filter out of nothing: %v", f)
		}
	}
}

func load(t *testing.T, text string) *Config {
	t.Helper()
	c, err := loader.LoadBytes("testdata/f", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return c
}

// A webhook is fast without tuning: each message is a separate Send. A user who sets one of the
// two limits, at any level, gets no tuned default for the other.
func TestLimitsOfAWebhook(t *testing.T) {
	const hook = "https://example.com/"
	for _, c := range []struct {
		name, top, own, sink string
		maxBatch, senders    int
	}{
		{"nothing given", "", "", hook, 1, 256},
		{"its concurrency", "", "", hook + "#concurrency=64", 1, 64},
		{"another limit", "relay: {lease: 20s}\n", "retry_max: 1h", hook, 1, 256},
		{"its own senders", "", "senders: 3", hook, 512, 3},
		{"its own batch", "", "max_batch: 3", hook, 3, 8},
		{"the top level's", "relay: {max_batch: 512}\n", "", hook, 512, 8},
		{"another sink", "", "", "stdout", 512, 8},
	} {
		text := strings.Replace(small, "sink: stdout", fmt.Sprintf("sink: %q, relay: {%s}", c.sink, c.own), 1)
		cfg := load(t, c.top+text)
		if r := cfg.Subscriptions[0].Relay; r.MaxBatch != c.maxBatch || r.Senders != c.senders {
			t.Errorf("%s: batches of %d, %d senders; want %d, %d", c.name, r.MaxBatch, r.Senders, c.maxBatch, c.senders)
		}
		again := load(t, strings.Replace(cfg.String(), "xxxxx", "x", -1))
		if again.Subscriptions[0].Relay != cfg.Subscriptions[0].Relay {
			t.Errorf("%s: printed and read again it is %+v", c.name, again.Subscriptions[0].Relay)
		}
	}
}
