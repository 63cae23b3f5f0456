package template

import (
	"errors"
	"net/url"
	"slices"
	"testing"

	"github.com/penstock/penstock"
)

func TestEscape(t *testing.T) {
	m := &penstock.Message{Topic: "a/b", Key: "ключ", Headers: map[string]string{"region": "e u"}}
	escape := func(_, value string) (string, error) { return url.PathEscape(value), nil }
	for _, tc := range []struct{ template, want string }{
		{"", ""},
		{"/hooks/fixed", "/hooks/fixed"},
		{"/{topic}/{{x}}", "/a%2Fb/{x}"},
		{"{key}/{header.region}", "%D0%BA%D0%BB%D1%8E%D1%87/e%20u"},
	} {
		tmpl, err := Parse(tc.template)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tmpl.Escape(m, escape); got != tc.want || err != nil {
			t.Errorf("%q: %q, %v; want %q", tc.template, got, err, tc.want)
		}
	}
}

func TestEscapeErrors(t *testing.T) {
	tmpl, err := Parse("/{topic}/{header.region}")
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	pass := func(placeholder, value string) (string, error) {
		asked = append(asked, placeholder)
		return value, nil
	}
	var missing *MissingHeaderError
	if _, err := tmpl.Escape(&penstock.Message{}, pass); !errors.As(err, &missing) || !penstock.IsPermanent(err) {
		t.Errorf("a missing header: %v", err)
	}
	refused := errors.New("refused")
	if _, err := tmpl.Escape(&penstock.Message{}, func(string, string) (string, error) { return "", refused }); err != refused {
		t.Errorf("what escape refuses: %v", err)
	}
	asked = nil
	if _, err := tmpl.Escape(&msg, pass); err != nil || !slices.Equal(asked, []string{"topic", "header.region"}) {
		t.Errorf("escape was asked about %q, %v", asked, err)
	}
}

func TestFixedAndHeaders(t *testing.T) {
	for _, tc := range []struct {
		template string
		fixed    bool
		headers  []string
	}{{"", true, nil}, {"/a{{b}}", true, nil}, {"/{topic}", false, nil}, {"{header.a}-{key}-{header.b}", false, []string{"a", "b"}}} {
		tmpl, err := Parse(tc.template)
		if err != nil {
			t.Fatal(err)
		}
		if tmpl.Fixed() != tc.fixed || !slices.Equal(tmpl.Headers(), tc.headers) {
			t.Errorf("%q: Fixed %v, Headers %q", tc.template, tmpl.Fixed(), tmpl.Headers())
		}
	}
}
