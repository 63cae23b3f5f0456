package drivers

import (
	"context"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func TestParseSink(t *testing.T) {
	for _, tc := range []struct{ url, name string }{
		{"amqp://app:hunter2@localhost/shop?exchange=orders", "rabbitmq"},
		{"amqps://localhost", "rabbitmq"},
		{"stdout", "stdout"},
		{"discard", "discard"},
		{"nats://localhost:4222", "nats"},
		{"NATS://localhost:4222", "nats"},
		{"tls://localhost:4222?subject=a.{topic}", "nats"},
		{"embedded", "nats"},
		{"embedded:/tmp/nats", "nats"},
		{"queue:emails", "queue"},
		{"kafka://a:9092,b:9092?topic=orders", "kafka"},
		{"kafkas://app:hunter2@a?sasl=plain", "kafka"},
		{"redis://app:hunter2@localhost/1?stream=orders", "redis"},
		{"rediss://localhost", "redis"},
		{"sqs://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo", "sqs"},
		{"pubsub://my-project/orders", "pubsub"},
		{"amqp1://app:hunter2@localhost?address=orders", "amqp1"},
		{"sns://arn:aws:sns:eu-west-1:123456789012:orders", "sns"},
		{"https://api.example.com/hooks/{topic}?tenant=7#concurrency=64", "webhook"},
		{"HTTP://api.example.com/", "webhook"},
	} {
		s, err := ParseSink(tc.url)
		if err != nil || s.Name() != tc.name {
			t.Errorf("ParseSink(%q): %q, %v", tc.url, s.Name(), err)
		}
	}
}

func TestParseSinkErrors(t *testing.T) {
	for _, tc := range []struct{ url, want string }{
		{"", "sink is empty: write "},
		{"gopher://app:hunter2@localhost", `sink has the unknown scheme "gopher": write `},
		{"localhost:5672", "sink is not a URL of a known kind"},
		{"hunter2", "embedded[:DIR], "},
		{"queue:", "sink queue: name is empty"},
		{"queue", "sink queue: name is empty"},
		{"nats://app:hunter2@localhost?nope=1", "sink nats: nope"},
		{"amqp://app:hunter2@localhost:port", "sink rabbitmq: url"},
		{"amqp://app:hunter2@localhost?nope=1", "sink rabbitmq: nope"},
		{"discard://app:hunter2@localhost", "sink discard: "},
		{"kafka://app:hunter2@localhost", "sink kafka: sasl"},
		{"kafka://localhost?nope=1", "sink kafka: nope"},
		{"redis://app:hunter2@localhost?nope=1", "sink redis: nope"},
		{"redis://app:hunter2@localhost:port", "sink redis: url"},
		{"sqs://orders", "sink sqs: queue_url"},
		{"pubsub:///orders", "sink pubsub: project"},
		{"amqp1://app:hunter2@localhost/orders", "sink amqp1: url"},
		{"sns://orders", "sink sns: topic_arn"},
		{"https://app:hunter2@localhost/#nope=1", "sink webhook: nope"},
		{"http://127.0.0.1/hunter2", "loopback address"},
	} {
		_, err := ParseSink(tc.url)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("ParseSink(%q): %v\nwant %s", tc.url, err, tc.want)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the password shows in %v", err)
		}
	}
}

func TestOpenSink(t *testing.T) {
	for _, url := range []string{"discard", "nats://127.0.0.1:1", "amqp://127.0.0.1:1", "kafka://127.0.0.1:1", "redis://127.0.0.1:1", "sqs://sqs.eu-west-1.amazonaws.com/1/q", "sns://arn:aws:sns:eu-west-1:1:t", "pubsub://p/orders", "amqp1://127.0.0.1:1", "http://127.0.0.1:1/#allow_private=true"} {
		s, err := ParseSink(url)
		if err != nil {
			t.Fatal(err)
		}
		sink, err := s.Open(quiet)
		if err != nil {
			t.Fatalf("%s: the broker need not be up, and yet: %v", url, err)
		}
		if err := sink.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	if sink, err := new(Sink).Open(quiet); err == nil || sink != nil {
		t.Errorf("a sink that is not set opened: %v, %v", sink, err)
	}
}

// The page of formats says of each sink what arrives.
func TestPageOfFormats(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	_, raw, _ := strings.Cut(string(page), "\n## Raw\n")
	raw, _, _ = strings.Cut(raw, "\n## ")
	var rows []string
	for line := range strings.Lines(raw) {
		if name, _, row := strings.Cut(strings.TrimPrefix(line, "| "), " |"); row && strings.HasPrefix(line, "| ") {
			rows = append(rows, strings.NewReplacer("/", "", " ", "", ".0", "").Replace(strings.ToLower(name)))
		}
	}
	for _, name := range SinkNames() {
		if name != "discard" && !slices.Contains(rows, name) {
			t.Errorf("the table of raw messages has no row for %s: %q", name, rows)
		}
	}
}

func TestOpenStore(t *testing.T) {
	ctx := context.Background()
	for _, url := range []string{
		"sqlite:" + t.TempDir() + "/a.db", "sqlite://" + t.TempDir() + "/a.db", "postgres://app:hunter2@127.0.0.1:1/x", "postgresql://127.0.0.1:1/x",
		"postgres://app:hunter2@127.0.0.1:1,[::1]:2/x?target_session_attrs=read-write", "postgres://app@127.0.0.1,127.0.0.2:5432/x",
	} {
		store, err := OpenStore(ctx, url, "", nil)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, tc := range []struct{ url, schema, want string }{
		{"", "", "database_url is empty: write postgres://USER@HOST/DATABASE, sqlite:FILE or mysql://HOST/"},
		{"oracle://app:hunter2@h", "", `database_url has the unknown scheme "oracle"`},
		{"mysql://app:hunter2@h1:3306,h2:3306/", "", "names several hosts"},
		{"mysql://app:hunter2@h/?tsl=true", "", "has an unknown parameter"},
		{"mysql://app:hunter2@h/?tls=hunter2", "", ""},
		{"sqlite:", "", "names no file"},
		{"sqlite:a", "s", "schema is set for a SQLite database"},
		{"postgres://app:hunter2@h:port/x", "", ""},
		{"postgres://app:hunter2@h/x?sslmode=hunter", "", ""},
		{"postgres://app:hunt%zzer2@h/x", "", ""},
		{"postgres://app:hunter2@h1:5432,h2:port/x", "", ""},
		{"postgres://app:hunter2@h1:5432,h2:5432/x?target_session_attrs=hunter", "", ""},
		{"postgres://app:hunt%zzer2@h1:5432,h2:5432/x", "", ""},
		{"postgres://h1:5432,h2:5432/x?password=hunter2&target_session_attrs=no", "", ""},
	} {
		store, err := OpenStore(ctx, tc.url, tc.schema, nil)
		if err == nil || store != nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, %v", tc.url, store, err)
		} else if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "er2") {
			t.Errorf("the password shows in %v", err)
		}
	}
}

// Two sinks with one scheme, or one name, could not be distinguished.
func TestEverySinkHasSchemesOfItsOwn(t *testing.T) {
	seen := map[string]string{}
	for _, d := range sinks {
		for _, s := range d.schemes {
			if seen[s] != "" {
				t.Errorf("both %s and %s have the scheme %s", seen[s], d.name, s)
			}
			seen[s] = d.name
		}
	}
}

func TestSameDatabase(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"postgres://me:secret@db/shop", "postgresql://you@db:5432/shop?sslmode=require", true},
		{"postgres://db1,db2/shop", "postgres://db2:5432,db1/shop?target_session_attrs=read-write", true},
		{"postgres://db/shop", "postgres://db/bills", false},
		{"postgres://db/shop", "postgres://other/shop", false},
		{"postgres://db/shop", "postgres://db:6432/shop", false},
		{"postgres://db/shop", "sqlite:shop", false},
		{"sqlite:shop.db", "sqlite:./shop.db", true},
		{"sqlite:shop.db", "sqlite:///shop.db", false},
		{"sqlite:shop.db", "sqlite:other.db", false},
		{"nonsense", "postgres://:x", false},
	} {
		if got := SameDatabase(c.a, c.b); got != c.want {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
	}
	for url, want := range map[string]string{
		"postgres://me:secret@db2,db1:6432/shop?password=secret": "shop at db1:6432, db2:5432",
		"portable+postgres://me:secret@db/shop":                  "shop at db:5432",
		"mysql://me:secret@db:3307/":                             "db:3307",
		"sqlite:/data/shop.db":                                   "/data/shop.db",
	} {
		if got := Place(url); got != want {
			t.Errorf("the place of %s is %s, want %s", url, got, want)
		}
	}
}
