package webhook

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"
)

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func TestDefaultsAreValid(t *testing.T) {
	c := Config{URL: "https://example.com"}
	c.SetDefaults()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	before := fmt.Sprintf("%+v", c)
	c.SetDefaults()
	if after := fmt.Sprintf("%+v", c); after != before {
		t.Errorf("SetDefaults twice: %s, then %s", before, after)
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		field string
		says  string
		cfg   Config
	}{
		{"url", "is missing", Config{}},
		{"url", "is not a webhook's URL", Config{URL: "example.com/hooks"}},
		{"url", "is not a webhook's URL", Config{URL: "ftp://example.com"}},
		{"url", "no host", Config{URL: "https:///hooks"}},
		{"url", "no host", Config{URL: "https://exa mple.com/"}},
		{"url", "no host", Config{URL: "https://app:hunter2%@example.com/"}},
		{"url", "has a #", Config{URL: "https://example.com/a#b"}},
		{"url", "placeholder in the host", Config{URL: "https://{header.tenant}.example.com/"}},
		{"url", "placeholder in the host", Config{URL: "https://example.com:{key}/"}},
		{"url", "path that is not a template", Config{URL: "https://example.com/{tpoic}"}},
		{"url", "query that is not a template", Config{URL: "https://example.com/?a={"}},
		{"url", "characters", Config{URL: "https://example.com/a b"}},
		{"url", "characters", Config{URL: "https://example.com/{{x}}"}},
		{"url", "characters", Config{URL: "https://example.com/%zz"}},
		{"url", "characters", Config{URL: "https://example.com/größe"}},
		{"url", "characters", Config{URL: "https://example.com/?q=a b"}},
		{"url", "characters", Config{URL: "https://example.com/?q=\r\nX: y"}},
		{"url", "loopback", Config{URL: "http://127.0.0.1:8080/"}},
		{"url", "loopback", Config{URL: "http://[::1]/"}},
		{"url", "loopback", Config{URL: "http://[::ffff:127.0.0.1]/"}},
		{"url", "metadata", Config{URL: "http://169.254.169.254/latest"}},
		{"url", "private", Config{URL: "http://10.1.2.3/", AllowAddresses: []string{"10.2.0.0/16"}}},
		{"method", "GET", Config{Method: "GET"}},
		{"headers", "name", Config{Headers: map[string]Secret{"a b": "c"}}},
		{"headers", "name", Config{Headers: map[string]Secret{"": "c"}}},
		{"headers.X", "one line", Config{Headers: map[string]Secret{"X": "a\r\nb"}}},
		{"headers.X", "one line", Config{Headers: map[string]Secret{"X": "hunter2 "}}},
		{"headers.Host", "not a header to configure", Config{Headers: map[string]Secret{"Host": "a"}}},
		{"headers.content-length", "not a header to configure", Config{Headers: map[string]Secret{"content-length": "1"}}},
		{"headers.webhook-signature", "not a header to configure", Config{Headers: map[string]Secret{"webhook-signature": "a"}}},
		{"headers.Idempotency-Key", "not a header to configure", Config{Headers: map[string]Secret{"Idempotency-Key": "a"}}},
		{"headers.ce-id", "CloudEvents", Config{Headers: map[string]Secret{"ce-id": "hunter2"}}},
		{"headers.CE-Tenant", "CloudEvents", Config{Headers: map[string]Secret{"CE-Tenant": "hunter2"}}},
		{"headers.content-type", "is set", Config{Headers: map[string]Secret{"content-type": "a"}}},
		{"headers.x-a", "twice", Config{Headers: map[string]Secret{"X-A": "a", "x-a": "b"}}},
		{"headers.Authorization", "user in the URL", Config{URL: "https://app:hunter2@example.com", Headers: map[string]Secret{"Authorization": "a"}}},
		{"content_type", "one line", Config{ContentType: "a\nb"}},
		{"secrets[0]", "is not base64", Config{Secrets: []Secret{"whsec_hunter2"}}},
		{"secrets[1]", "24 to 64 bytes", Config{Secrets: []Secret{testSecret, "whsec_aHVudGVyMg=="}}},
		{"retry_statuses[1]", "is 500", Config{RetryStatuses: []int{404, 500}}},
		{"concurrency", "is -1", Config{Concurrency: -1}},
		{"concurrency", "is 4097", Config{Concurrency: 4097}},
		{"http", `"3"`, Config{HTTP: "3"}},
		{"connect_timeout", "negative", Config{ConnectTimeout: -1}},
		{"response_timeout", "negative", Config{ResponseTimeout: -1}},
		{"timeout", "negative", Config{Timeout: -1}},
		{"max_retry_after", "negative", Config{MaxRetryAfter: -1}},
		{"allow_addresses[0]", "localhost", Config{AllowAddresses: []string{"localhost"}}},
		{"allow_addresses[1]", "10.0.0.0/33", Config{AllowAddresses: []string{"10.0.0.1", "10.0.0.0/33"}}},
		{"proxy", "is not a proxy's URL", Config{Proxy: "socks5://app:hunter2@proxy"}},
		{"proxy", "is not a proxy's URL", Config{Proxy: "http://app:hunter2@%"}},
		{"proxy", "allow_private", Config{Proxy: "http://proxy:3128", AllowPrivate: true}},
		{"tls", "only one", Config{TLS: TLSConfig{CertFile: "a"}}},
		{"tls", "not https://", Config{URL: "http://example.com", TLS: TLSConfig{CAFile: "a"}}},
	} {
		cfg := c.cfg
		if cfg.URL == "" && c.says != "is missing" {
			cfg.URL = "https://example.com/hooks"
		}
		cfg.SetDefaults()
		err := cfg.Validate()
		wantField(t, c.field+" "+c.says, err, c.field)
		if err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: %q does not say %q, or shows a secret", c.field, err, c.says)
		}
	}
}

// Settings that can be read only when the sink is opened.
func TestOpenErrors(t *testing.T) {
	for _, c := range []struct {
		field string
		tls   TLSConfig
	}{
		{"tls.ca_file", TLSConfig{CAFile: "testdata/none.pem"}},
		{"tls.ca_file", TLSConfig{CAFile: "config_test.go"}},
		{"tls.cert_file", TLSConfig{CertFile: "config_test.go", KeyFile: "config_test.go"}},
	} {
		_, err := Open(Config{URL: "https://example.com", TLS: c.tls}, nil)
		wantField(t, c.field, err, c.field)
	}
}

func TestParseURL(t *testing.T) {
	c, err := ParseURL("https://example.com/hooks/{topic}?concurrency=endpoint&x=%23#concurrency=64&method=PUT&content_type=application/json&" +
		"retry_statuses=404,409&http=1.1&connect_timeout=1s&response_timeout=2s&timeout=3s&max_retry_after=4s&" +
		"allow_private=true&allow_addresses=10.0.0.0/8,::1&tls.server_name=hooks&tls.ca_file=a&tls.cert_file=b&tls.key_file=c")
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		URL: "https://example.com/hooks/{topic}?concurrency=endpoint&x=%23", Concurrency: 64, Method: http.MethodPut, ContentType: "application/json",
		RetryStatuses: []int{404, 409}, HTTP: "1.1", ConnectTimeout: time.Second, ResponseTimeout: 2 * time.Second, Timeout: 3 * time.Second,
		MaxRetryAfter: 4 * time.Second, AllowPrivate: true, AllowAddresses: []string{"10.0.0.0/8", "::1"},
		TLS: TLSConfig{CAFile: "a", CertFile: "b", KeyFile: "c", ServerName: "hooks"},
	}
	if got, want := fmt.Sprintf("%+v", c), fmt.Sprintf("%+v", want); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if c, err := ParseURL("http://example.com"); err != nil || c.Concurrency != 256 {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := ParseURL("http://example.com#proxy=http://app:hunter2@proxy:3128"); err != nil || c.Proxy != "http://app:hunter2@proxy:3128" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestParseURLErrors(t *testing.T) {
	for _, c := range []struct{ url, field string }{
		{"", "url"},
		{"webhook", "url"},
		{"https://example.com#%zz", "url"},
		{"https://example.com#a#b", "a#b"},
		{"https://example.com#nope=1", "nope"},
		{"https://example.com#timeout=1s&timeout=2s", "timeout"},
		{"https://example.com#timeout=soon", "timeout"},
		{"https://example.com#concurrency=many", "concurrency"},
		{"https://example.com#concurrency=5000", "concurrency"},
		{"https://example.com#allow_private=maybe", "allow_private"},
		{"https://example.com#retry_statuses=404,gone", "retry_statuses"},
		{"https://example.com#secrets=hunter2", "secrets"},
		{"https://example.com#headers.Authorization=hunter2", "headers.Authorization"},
		{"http://localhost:1/#allow_private", "allow_private"},
		{"http://127.0.0.1:1/", "url"},
	} {
		_, err := ParseURL(c.url)
		wantField(t, c.url, err, c.field)
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the secret shows in %v", err)
		}
	}
}

func TestSecretsDoNotShow(t *testing.T) {
	c := Config{URL: "https://example.com", Secrets: []Secret{testSecret}, Headers: map[string]Secret{"Authorization": "Bearer hunter2"}}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", c.Secrets[0], "config", c)
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{fmt.Sprint(c), fmt.Sprintf("%v %+v %#v %s %q %x", c, c, c, c.Secrets, c.Secrets[0], c.Secrets[0]), log.String(), string(asJSON)} {
		if strings.Contains(shown, "hunter2") || strings.Contains(shown, testSecret[8:]) || strings.Contains(shown, "68756e746572") {
			t.Errorf("a secret shows in %s", shown)
		}
	}
	if c.Secrets[0].Reveal() != testSecret || fmt.Sprint(Secret("")) != "" {
		t.Error("Reveal does not, or an empty secret looks like one")
	}
}

// Unencrypted requests are logged.
func TestPlainHTTPIsLogged(t *testing.T) {
	for scheme, want := range map[string]bool{"http": true, "https": false} {
		var log strings.Builder
		s, err := Open(Config{URL: scheme + "://app:hunter2@example.com/t0ken"}, slog.New(slog.NewTextHandler(io.MultiWriter(&log), nil)))
		must(t, err)
		must(t, s.Close(t.Context()))
		if got := strings.Contains(log.String(), "unencrypted"); got != want || strings.Contains(log.String(), "hunter2") || strings.Contains(log.String(), "t0ken") {
			t.Errorf("%s: the log says %q", scheme, log.String())
		}
	}
}
