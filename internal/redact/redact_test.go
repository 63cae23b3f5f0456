package redact

import (
	"slices"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"postgres://app:hunter2@h/x":                  "postgres://app:xxxxx@h/x",
		"amqp://app:hun@ter2@h/x":                     "amqp://app:xxxxx@h/x",
		"amqp://app:hunt/er2@h/x":                     "amqp://app:xxxxx@h/x",
		"amqp://app:hunt er2@h/x":                     "amqp://app:xxxxx@h/x",
		"amqp://me@corp.example:hunter2@h/x":          "amqp://me@corp.example:xxxxx@h/x",
		"postgres://app@h/x":                          "postgres://app@h/x",
		"postgres://h/x?user=a&password=hunter2&b=c":  "postgres://h/x?user=a&password=xxxxx&b=c",
		"postgres://h/x?sslpassword=hunter2":          "postgres://h/x?sslpassword=xxxxx",
		"nats://hunter2@h:4222":                       "nats://xxxxx@h:4222",
		"nats://a:hunter2@h:4222,nats://b:hunter2@h2": "nats://a:xxxxx@h2",
		"nats://hunter2@h:4222,nats://hunter2@h2":     "nats://xxxxx@h2",
		"host=h user=app password=hunter2":            "host=h user=app password=xxxxx",
		"nats://h1:4222,h2:4222":                      "nats://h1:4222,h2:4222",
		"sqlite:app.db":                               "sqlite:app.db",
		// Several hosts, which net/url does not accept.
		"postgres://app:hunter2@h1:5432,h2:5432/x?target_session_attrs=read-write":      "postgres://app:xxxxx@h1:5432,h2:5432/x?target_session_attrs=read-write",
		"postgres://app:hun/t@er2@h1:5432,[::1]:5433/x?target_session_attrs=read-write": "postgres://app:xxxxx@h1:5432,[::1]:5433/x?target_session_attrs=read-write",
		"postgres://app@h1:5432,h2:5432/x":                                              "postgres://app@h1:5432,h2:5432/x",
		"postgres://h1:5432,h2:5432/x?user=app&password=hunter2":                        "postgres://h1:5432,h2:5432/x?user=app&password=xxxxx",
		"": "",
	} {
		got := Text(in)
		if strings.Contains(got, "hunter2") || strings.Contains(got, "er2") {
			t.Errorf("Text(%q) = %q shows the password", in, got)
		}
		if strings.Count(in, "://") < 2 && got != want { // with several URLs, more is masked than necessary
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestPasswords(t *testing.T) {
	for in, want := range map[string][]string{
		"postgres://app:hunter2@h/x":                                 {"hunter2"},
		"postgres://app:hunter2@h1:5432,h2:5432/x":                   {"hunter2"},
		"postgres://app:hunter2@[::1]:5432,h2:5432/x?a=b@c":          {"hunter2"},
		"postgres://app:a%40b+c@h1:5432,h2:5432/x":                   {"a%40b+c", "a@b c", "a@b+c"},
		"postgres://app:a@b@h1:5432,h2:5432/x":                       {"a@b"},
		"postgres://app:a/b@h1:5432,h2:5432/x":                       {"a/b"},
		"postgres://app:50%off@h1:5432,h2/x":                         {"50%off"},
		"postgres://h1:5432,h2/x?password=p%21&sslpassword=q&user=u": {"p!", "p%21", "q"},
		"nats://a:p@h1:4222,nats://b:q@h2:4222":                      {"p", "q"},
		"postgres://app@h1:5432,h2:5432/x":                           {},
		"postgres://app:@h1:5432,h2:5432/x":                          {},
		"postgres://h1:5432,h2:5432/x":                               {},
		"sqlite:app.db":                                              {},
		"stdout":                                                     {},
		"":                                                           {},
	} {
		if got := Passwords(in); !slices.Equal(got, want) {
			t.Errorf("Passwords(%q) = %q, want %q", in, got, want)
		}
	}
}
