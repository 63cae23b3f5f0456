package template

import (
	"errors"
	"strings"
	"testing"

	"github.com/penstock/penstock"
)

var msg = penstock.Message{
	Key: "N14228", Topic: "flight.departed",
	Headers: map[string]string{"region": "eu", "empty": "", "x.y": "dotted"},
}

func TestExecute(t *testing.T) {
	for _, tc := range []struct{ template, want string }{
		{"", ""},
		{"{topic}", "flight.departed"},
		{"{key}", "N14228"},
		{"fixed", "fixed"},
		{"orders.{header.region}.{topic}", "orders.eu.flight.departed"},
		{"{key}{topic}", "N14228flight.departed"},
		{"{header.empty}", ""},
		{"{header.x.y}", "dotted"},
		{"{{topic}}", "{topic}"},
		{"{{{topic}}}", "{flight.departed}"},
		{"}}{{", "}{"},
		{"größe.{key}", "größe.N14228"},
	} {
		tmpl, err := Parse(tc.template)
		if err != nil {
			t.Errorf("Parse(%q): %v", tc.template, err)
			continue
		}
		got, err := tmpl.Execute(&msg)
		if err != nil || got != tc.want {
			t.Errorf("%q: got %q, %v; want %q", tc.template, got, err, tc.want)
		}
		if tmpl.String() != tc.template {
			t.Errorf("String() = %q, want %q", tmpl, tc.template)
		}
	}
}

func TestMissingHeaderIsPermanent(t *testing.T) {
	for _, s := range []string{"{header.tenant}", "a.{header.tenant}.{topic}"} {
		tmpl, err := Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tmpl.Execute(&msg)
		if !penstock.IsPermanent(err) {
			t.Errorf("%q: %v is not permanent", s, err)
		}
		var missing *MissingHeaderError
		if !errors.As(err, &missing) || missing.Header != "tenant" {
			t.Errorf("%q: error %v does not name the header", s, err)
		}
		if v, ok := tmpl.Optional(&msg); ok || v != "" {
			t.Errorf("%q: Optional says %q, %v", s, v, ok)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, tc := range []struct{ template, want string }{
		{"{topci}", "at character 1: unknown placeholder {topci}"},
		{"a.{Topic}", "at character 3: unknown placeholder {Topic}"},
		{"{ topic }", "unknown placeholder { topic }"},
		{"größe.{x}", "at character 7: unknown placeholder {x}"},
		{"a.{topic", "at character 3: a { that is never closed"},
		{"a}b", "at character 2: a } that closes nothing"},
		{"{}", "at character 1: a placeholder without a name"},
		{"{header}", "a header placeholder without the header's name"},
		{"{header.}", "a header placeholder without the header's name"},
		{"{header.a{b}", "unknown placeholder {header.a{b}"},
		{"{topic}}", "at character 8: a } that closes nothing"},
	} {
		_, err := Parse(tc.template)
		if err == nil {
			t.Errorf("Parse(%q): no error", tc.template)
			continue
		}
		if !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), Allowed) {
			t.Errorf("Parse(%q): %v\nwant %q and what is allowed", tc.template, err, tc.want)
		}
	}
}

func TestOnePlaceholderDoesNotAllocate(t *testing.T) {
	for _, s := range []string{"{topic}", "{key}", "{header.region}", "fixed"} {
		tmpl, err := Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = tmpl.Execute(&msg); _, _ = tmpl.Optional(&penstock.Message{}) }); n != 0 {
			t.Errorf("%q: %v allocations", s, n)
		}
	}
}

func BenchmarkExecute(b *testing.B) {
	for _, s := range []string{"{topic}", "orders.{header.region}.{topic}"} {
		b.Run(s, func(b *testing.B) {
			tmpl, err := Parse(s)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tmpl.Execute(&msg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A template that parses must execute, and braces in the message must never be taken for
// placeholders.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "{topic}", "{{", "}}", "{", "}", "a.{header.x}.{key}", "{{{topic}}}", "{header.}", "\xff{topic}\x00"} {
		f.Add(s, "to{key}pic")
	}
	f.Fuzz(func(t *testing.T, s, topic string) {
		tmpl, err := Parse(s)
		if err != nil {
			var pe *ParseError
			if !errors.As(err, &pe) || pe.Offset < 0 || pe.Offset >= len(s) {
				t.Fatalf("Parse(%q): %#v", s, err)
			}
			_ = err.Error()
			return
		}
		m := penstock.Message{Topic: topic}
		got, err := tmpl.Execute(&m)
		if err != nil {
			if !penstock.IsPermanent(err) || !strings.Contains(s, "{header.") {
				t.Fatalf("Execute(%q): %v", s, err)
			}
			return
		}
		// A second way to the same result: mask the escapes, then replace.
		if !strings.Contains(s, "{key}") && !strings.Contains(s, "\x00") && !strings.Contains(topic, "\x00") && !strings.Contains(s, "{{{") && !strings.Contains(s, "}}}") {
			want := strings.NewReplacer("{{", "\x001", "}}", "\x002").Replace(s)
			want = strings.ReplaceAll(want, "{topic}", "\x003")
			want = strings.NewReplacer("\x001", "{", "\x002", "}", "\x003", topic).Replace(want)
			if got != want {
				t.Fatalf("Execute(%q) with topic %q: got %q, want %q", s, topic, got, want)
			}
		}
	})
}
