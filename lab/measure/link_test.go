package measure

import (
	"net/url"
	"testing"
)

func TestLinkKeepsTheRestOfTheURL(t *testing.T) {
	l, err := newLink("nats://user@127.0.0.1?subject=x")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	through, err := l.reach("nats://user@127.0.0.1?subject=x")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(through)
	if err != nil || u.Host != l.Addr() || u.User.Username() != "user" || u.Query().Get("subject") != "x" {
		t.Fatalf("the URL through the link is %q, %v", through, err)
	}
}

func TestLinkOnlyWhereThereIsTCP(t *testing.T) {
	for _, url := range []string{"embedded", "embedded:/tmp/x", "discard", "stdout"} {
		if l, err := newLink(url); l != nil || err != nil {
			t.Errorf("%s: %v, %v", url, l, err)
		}
	}
	for _, url := range []string{"amqps://host", "nats://a,b", "tls://host"} {
		if _, err := newLink(url); err == nil {
			t.Errorf("%s: no error", url)
		}
	}
}
