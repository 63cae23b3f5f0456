package redis_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/sink/redis"
)

func TestParseURL(t *testing.T) {
	got, err := redis.ParseURL("rediss://me:p%40ss@redis.example:6380/3?stream=a.{topic}&existing_only=true&max_length=10&replicas=2&fsync=true&wait_timeout=1s" +
		"&connect_timeout=2s&timeout=3s&user=u&password=p&tls.ca_file=ca&tls.cert_file=c&tls.key_file=k&tls.server_name=n&tls.dangerously_skip_certificate_check=true")
	check(t, err)
	want := redis.Config{
		URL: "rediss://me:p%40ss@redis.example:6380/3", User: "u", Password: "p", Stream: "a.{topic}", ExistingOnly: true, MaxLength: 10, Replicas: 2, Fsync: true,
		WaitTimeout: time.Second, ConnectTimeout: 2 * time.Second, Timeout: 3 * time.Second,
		TLS: redis.TLSConfig{CAFile: "ca", CertFile: "c", KeyFile: "k", ServerName: "n", DangerouslySkipCertificateCheck: true},
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}

	got, err = redis.ParseURL("redis://localhost")
	check(t, err)
	want = redis.Config{
		URL: "redis://localhost", Stream: "{topic}", WaitTimeout: 2 * time.Second,
		ConnectTimeout: 5 * time.Second, Timeout: 10 * time.Second,
	}
	if got != want {
		t.Errorf("defaults: got %+v, want %+v", got, want)
	}
}

func TestConfigMistakes(t *testing.T) {
	for u, want := range map[string]string{
		"redis://localhost#timeout=1s":          "url has options after the server: write them as separate fields, or in one line behind a ?",
		"redis://localhost/-1":                  "url is not a Redis URL",
		"http://localhost":                      "url is not a Redis URL",
		"redis://localhost/orders":              "url is not a Redis URL",
		"redis://localhost?topic=x":             "topic is not a parameter of a Redis URL: use one of connect_timeout",
		"redis://localhost?stream={nope}":       "stream cannot be used",
		"redis://localhost?max_length=-1":       "max_length is negative",
		"redis://localhost?replicas=-1":         "replicas is negative",
		"redis://localhost?wait_timeout=1us":    "wait_timeout is 1µs",
		"redis://localhost?wait_timeout=10s":    "wait_timeout is 10s: choose less than timeout (10s)",
		"redis://localhost?timeout=-1s":         "timeout is negative",
		"redis://localhost?connect_timeout=-1s": "connect_timeout is negative",
		"redis://localhost?tls.ca_file=ca":      "tls is set, but the URL is not rediss://",
		"rediss://localhost?tls.cert_file=c":    "tls has only one of cert_file and key_file",
		"redis://localhost?stream=%zz":          "url has parameters that cannot be read",
	} {
		if _, err := redis.ParseURL(u); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v; want %q", u, err, want)
		}
	}
}

// Files are read when the sink is opened, not when the first connection is made.
func TestOpenReadsFiles(t *testing.T) {
	cfg := redis.Config{URL: "rediss://localhost", TLS: redis.TLSConfig{CAFile: "/does/not/exist"}}
	if _, err := redis.Open(cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "tls.ca_file cannot be read") {
		t.Error(err)
	}
}

// An unescaped password is parsed as a port, a path or a fragment.
func TestMistakenURLKeepsItsPassword(t *testing.T) {
	for _, u := range []string{
		"redis://me:pass/wordy@localhost", "redis://me:pass#wordy@localhost", "redis://me:pass?wordy@localhost",
		"redis://me:pass%wordy@localhost", "redis://me:pass wordy@localhost", "://me:pass-wordy@localhost",
	} {
		if _, err := redis.ParseURL(u); err == nil {
			t.Errorf("%s was accepted", u)
		} else if strings.Contains(err.Error(), "wordy") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}
