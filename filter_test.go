package penstock_test

import (
	"testing"

	"github.com/penstock/penstock"
)

func TestFilterMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, topic string
		want           bool
	}{
		{"orders", "orders", true},
		{"orders", "orders.placed", false},
		{"orders.placed", "orders", false},
		{"orders.*", "orders.placed", true},
		{"orders.*", "orders", false},
		{"orders.*", "orders.placed.eu", false},
		{"*.placed", "orders.placed", true},
		{"orders.>", "orders.placed.eu", true},
		{"orders.>", "orders", false},
		{">", "anything.at.all", true},
		{">", "", true},
		{"*", "", true},
		{"*", "a.b", false},
		{"", "", true},
		{"", "a", false},
	} {
		f := penstock.Filter{Topics: []string{"no.such.topic", c.pattern}}
		if got := f.Match(&penstock.Message{Topic: c.topic}); got != c.want {
			t.Errorf("pattern %q, topic %q: %v, want %v", c.pattern, c.topic, got, c.want)
		}
	}
	f := penstock.Filter{Headers: map[string]string{"region": "eu", "tenant": "*"}}
	for _, c := range []struct {
		headers map[string]string
		want    bool
	}{
		{nil, false},
		{map[string]string{"region": "eu"}, false},
		{map[string]string{"region": "eu", "tenant": ""}, true},
		{map[string]string{"region": "EU", "tenant": "a"}, false},
	} {
		if got := f.Match(&penstock.Message{Headers: c.headers}); got != c.want {
			t.Errorf("headers %v: %v, want %v", c.headers, got, c.want)
		}
	}
	if !(&penstock.Filter{}).Match(&penstock.Message{}) {
		t.Error("the zero filter does not match everything")
	}
}

func TestFilterValidate(t *testing.T) {
	for _, bad := range []penstock.Filter{
		{Topics: []string{"a.>.b"}}, {Topics: []string{"ord*"}}, {Topics: []string{"a.b>"}}, {Topics: []string{"a\x00"}}, {Headers: map[string]string{"": "x"}},
	} {
		if bad.Validate() == nil {
			t.Errorf("%v is valid", bad)
		}
	}
	for _, good := range []penstock.Filter{{}, {Topics: []string{"a.*.b", ">", "x.>"}}, {Headers: map[string]string{"h": "*"}}} {
		if err := good.Validate(); err != nil {
			t.Errorf("%v: %v", good, err)
		}
	}
}
