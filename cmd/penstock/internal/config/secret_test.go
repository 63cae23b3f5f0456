package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/penstock/penstock/sink/nats"
)

// However a configuration is logged or printed, its passwords do not show.
func TestSecretsNeverShow(t *testing.T) {
	c, err := loader.LoadBytes("testdata/full.good.yaml", []byte(readTestFile(t, "full.good.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	if c.DatabaseURL.Reveal() != env["PENSTOCK_DATABASE_URL"] || c.Subscriptions[0].Sink.Config().(*nats.Config).Password != "hunter2" {
		t.Fatal("the secrets are not there to be shown")
	}
	type wrapped struct {
		C  Config
		P  *Config
		Us []URL
		M  map[string]any
	}
	var shown bytes.Buffer
	print := func(values ...any) {
		for _, v := range values {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
				fmt.Fprintf(&shown, verb+"\n", v)
			}
			fmt.Fprintln(&shown, v)
			for _, marshal := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal} {
				out, err := marshal(v)
				if err != nil {
					t.Errorf("%T: %v", v, err)
				}
				shown.Write(out)
			}
			slog.New(slog.NewTextHandler(&shown, nil)).Info("text", "v", v, slog.Group("g", "v", v))
			slog.New(slog.NewJSONHandler(&shown, nil)).Info("json", "v", v, slog.Group("g", "v", v))
		}
	}
	s := c.Subscriptions[0]
	print(c, *c, c.DatabaseURL, &c.DatabaseURL, c.Subscriptions, s, &s, s.Sink, &s.Sink, c.Subscriptions[2].Sink,
		wrapped{*c, c, []URL{c.DatabaseURL}, map[string]any{"c": c, "sink": s.Sink}})
	if i := strings.Index(shown.String(), "hunter2"); i >= 0 {
		t.Errorf("the password shows in …%s…", shown.String()[max(0, i-200):i+20])
	}
	for _, want := range []string{"app:xxxxx@db.example", "password: xxxxx", `"password":"xxxxx"`, "max_in_flight_bytes: 16MiB"} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("%q is not shown", want)
		}
	}
}

// An error quotes the escaped value of an environment variable.
func TestEscapedSecretsNeverShowInErrors(t *testing.T) {
	l := Loader{LookupEnv: func(string) (string, bool) { return "a\"b*\\c", true }}
	_, err := l.LoadBytes("f", []byte("database_url: sqlite:a\nsubscriptions: [{name: a, outbox: b, sink: stdout, filter: {topics: ['${X}']}}]"))
	if err == nil || !strings.Contains(err.Error(), "wildcard") || strings.Contains(err.Error(), "b*") {
		t.Errorf("%v", err)
	}
}

func TestRedactLine(t *testing.T) {
	for in, want := range map[string]string{
		"password: hunter2":                     "password: xxxxx",
		"  - token: hunter2 # comment":          "  - token: xxxxx",
		"nats: {user: a, password: hunter2}":    "nats: {user: a, password: xxxxx",
		`{"password":"hunter2"}`:                `{"password":xxxxx`,
		`{"password": "hunter2", x: 1}`:         `{"password": xxxxx`,
		"password: ${NATS_PASSWORD}":            "password: ${NATS_PASSWORD}",
		"password: ${NATS_PASSWORD}hunter2":     "password: xxxxx",
		"password: file:/run/secrets/nats":      "password: file:/run/secrets/nats",
		"{password: ${A}, token: hunter2}":      "{password: xxxxx",
		"password: file:x, token: hunter2":      "password: xxxxx",
		"nkey_file: relay.nk":                   "nkey_file: relay.nk",
		"routing_key: a":                        "routing_key: a",
		"url: amqp://app:hunter2@h # mail me@x": "url: amqp://app:xxxxx@x",
		"Cookie: a=hunter2; b=hunter2":          "Cookie: xxxxx",
		"X-Auth: hunter2":                       "X-Auth: xxxxx",
		"headers: {X-Access-Key: hunter2}":      "headers: {X-Access-Key: xxxxx",
		"Authorization: Bearer hunter2":         "Authorization: xxxxx",
		"X-Signature-Key: hunter2":              "X-Signature-Key: xxxxx",
		"hunter2":                               "",
		"  hunter2  ":                           "",
		"- name: a":                             "- name: a",
	} {
		if got := redactLine(in); got != want {
			t.Errorf("redactLine(%q) = %q, want %q", in, got, want)
		}
	}
}

// Secrets could reach an error in several ways: from the file's line, from a variable or file in
// the wrong field, and through a sink's own error.
func TestSecretsNeverShowInErrors(t *testing.T) {
	for _, sink := range []string{
		"nats://app:${NATS_PASSWORD}@h/?nope=1",
		"nats://app:hunter2@h/?nope=1",
		"nats://app:hunter2@h/?max_pending=${NATS_PASSWORD}",
		"amqp://app:hunter2@h:port/",
		"amqp://app:hunter2@h/%zz",
		"amqp://app:hunter2@[h/",
		"stdout://app:hunter2@h",
		"discard:${NATS_PASSWORD}",
		"${NATS_PASSWORD}",
		"file:secrets/password",
		`{ nats: { url: "nats://app:hunter2@h:port" } }`,
		`{ nats: { url: "nats://app:hunter2@[h" } }`,
		`{ nats: { subject: "{${NATS_PASSWORD}}" } }`,
		`{ nats: { password: hunter2, pasword: hunter2 } }`,
		`{ nats: { token: [hunter2] } }`,
		"{ nats: { token:\n  [hunter2] } }",
		"\n    nats:\n      password:\n      - hunter2\n",
		"\n    nats:\n      password:\n        hunter2: x\n",
		"\n    nats:\n      password: |\n       hunter2\n      user: [a]\n",
		"\n    nats:\n      password: |\n       x\n     hunter2\n",
		"\n    nats:\n      password: \"x\n       hunter2\" y\n",
		`{ nats: { token: hunter2, user: a } }`,
		`{ nats: { ack_wait: "${NATS_PASSWORD}" } }`,
		`{ nats: { embedded: { sync_always: "${NATS_PASSWORD}" } } }`,
	} {
		text := "database_url: ${PENSTOCK_DATABASE_URL}x\nsubscriptions:\n- name: a\n  outbox: b\n  sink: " + sink + "\n"
		_, err := loader.LoadBytes("testdata/f", []byte(text))
		if err == nil {
			t.Errorf("%s: no error", sink)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the password shows in\n%v", sink, err)
		}
	}
}
