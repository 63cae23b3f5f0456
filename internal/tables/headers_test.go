package tables

import (
	"maps"
	"testing"
)

func TestDecodeHeaders(t *testing.T) {
	for _, c := range []struct {
		in   string
		want map[string]string
		bad  bool
	}{
		{in: `{}`},
		{in: `{"a":"b"}`, want: map[string]string{"a": "b"}},
		{in: `{"a": "b", "c": "d"}`, want: map[string]string{"a": "b", "c": "d"}},
		{in: " {\n\"a\" :\t\"b\"} ", want: map[string]string{"a": "b"}},
		{in: `{"a":"first","a":"last"}`, want: map[string]string{"a": "last"}},
		{in: `{"a":"quote \" slash \\ \u00e9"}`, want: map[string]string{"a": `quote " slash \ é`}},
		{in: `{"a":"":"b"}`, bad: true},
		{in: `{"":""}`, want: map[string]string{"": ""}},
		{in: `{"n":1.50,"t":true,"null":null,"nested":{"x": [1, 2]}}`, want: map[string]string{"n": "1.50", "t": "true", "nested": `{"x":[1,2]}`}},
		{in: `{"a":null}`},
		{in: `null`, bad: true},
		{in: `[]`, bad: true},
		{in: `{"a":"b"} {}`, bad: true},
		{in: `{"a":"b",}`, bad: true},
		{in: `{"a":"b"`, bad: true},
		{in: "{\"a\":\"\x00\"}", bad: true},
		{in: ``, bad: true},
	} {
		got, err := decodeHeaders(c.in)
		if (err != nil) != c.bad || !maps.Equal(got, c.want) {
			t.Errorf("DecodeHeaders(%q) = %v, %v; want %v, error: %t", c.in, got, err, c.want, c.bad)
		}
	}
}

// The fast way must always agree with the thorough way, and text that
// was encoded comes back.
func FuzzDecodeHeaders(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":"b"}`, `{"a": "b", "c":"d"}`, `{"a":"\u00e9"}`, `{"a":1,"b":[true,null]}`, `{"a":"b"`, `{"":"x","":"y"}`, "{\"\xff\":\"\"}", `{"a""b"}`, `{,}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		thorough, err := decodeJSON(s)
		if fast, ok := decodePlain(s); ok && (err != nil || !maps.Equal(fast, thorough)) {
			t.Fatalf("%q: fast %v, thorough %v, %v", s, fast, thorough, err)
		}
		if err != nil || len(thorough) == 0 {
			return
		}
		encoded := HeadersText(thorough)
		if again, err := decodeHeaders(*encoded); err != nil || !maps.Equal(again, thorough) {
			t.Fatalf("%q: %v became %q and %v, %v", s, thorough, *encoded, again, err)
		}
	})
}
