package config

import (
	"fmt"
	"strings"
	"testing"
)

func TestServe(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	load := func(serve string) (*Config, error) {
		return Loader{LookupEnv: func(string) (string, bool) { return token, true }}.LoadBytes("penstock.yaml", []byte("database_url: sqlite:shop.db\nserve: "+serve+"\n"))
	}
	for serve, want := range map[string]string{
		`{listen: "127.0.0.1:8080"}`:                                                                      "",
		`{listen: "127.0.0.1:8080", outboxes: [{name: orders, inbox: i}]}`:                                "",
		`{listen: "0.0.0.0:8080", outboxes: [{name: orders, token: "${TOKEN}"}]}`:                         "",
		`{listen: "0.0.0.0:8080"}`:                                                                        "serve.listen is \"0.0.0.0:8080\", which other machines reach",
		`{listen: "0.0.0.0:8080", outboxes: [{name: orders}]}`:                                            "no token is set",
		`{listen: nowhere}`:                                                                               "serve.listen is \"nowhere\"",
		`{listen: "127.0.0.1:1", outboxes: [{token: "${TOKEN}"}]}`:                                        "serve.outboxes[0].name",
		`{listen: "127.0.0.1:1", outboxes: [{name: a, token: "${TOKEN}"}, {name: b}]}`:                    "serve.outboxes[1].token is missing",
		`{listen: "127.0.0.1:1", outboxes: [{name: a, token: "${TOKEN}"}, {name: b, token: "${TOKEN}"}]}`: "serve.outboxes[1].token is that of another",
		`{listen: "127.0.0.1:1", outboxes: [{name: a}, {name: a}]}`:                                       "serve.outboxes[1].name is given twice",
		`{listen: "127.0.0.1:1", outboxes: [{name: a, token: hunter2}]}`:                                  "is shorter than 32 characters",
		`{listen: "127.0.0.1:1", max_wait: -1s}`:                                                          "negative",
	} {
		c, err := load(serve)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", serve, err, want)
		}
		if text := fmt.Sprintf("%v %+v %v", c, c, err); strings.Contains(text, token) || strings.Contains(text, "hunter2") {
			t.Errorf("%s: a token shows in %s", serve, text)
		}
	}
}
