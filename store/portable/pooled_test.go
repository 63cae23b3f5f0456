package portable_test

import (
	"bytes"
	"net/url"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/test/queuetest"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testserver"
)

// Behind PgBouncer in transaction mode everything goes as it does without: no statement counts on what another one left in its session.
func TestPooled(t *testing.T) {
	t.Parallel()
	direct := testserver.PostgresURL(t)
	skipPooled(t, direct, "another one is one too many")
	if e := engine(t, direct); e != "PostgreSQL" {
		t.Skip("PgBouncer does not go with", e)
	}
	b := testserver.StartPgBouncer(t, direct, "server_idle_timeout = 2", "max_client_conn = 1000")
	front, err := url.Parse(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	// The driver asks the server to end a statement whose context has ended. Version 1.18 of the pooler crashes ("bad client state: 0")
	// if the connection with such a request is cut, as tests of outages do. All other tests would lose theirs.
	noCancel := tcpproxy.New(t, front.Host)
	noCancel.Never(func(said []byte) bool {
		return len(said) == 16 && bytes.HasPrefix(said, []byte{0, 0, 0, 16, 4, 210, 22, 46})
	})
	pooled := func(t testing.TB, direct string) string {
		u, err := url.Parse(direct)
		if err != nil {
			t.Fatal(err)
		}
		// A statement that pgx prepares another session of the pooler's may have.
		u.Host, u.RawQuery = noCancel.Addr(), u.RawQuery+"&default_query_exec_mode=exec"
		return u.String()
	}
	store, queue := outboxes(pooled), queues(pooled)
	store.Only, queue.Only = storetest.Pooled, queuetest.Pooled
	t.Run("Store", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, store)
	})
	t.Run("Queue", func(t *testing.T) {
		t.Parallel()
		queuetest.Run(t, queue)
	})
}

// skipPooled skips a test that PgBouncer does not let happen. The URL of withservers -pooled has this parameter.
func skipPooled(t *testing.T, url, why string) {
	if isPooled(url) {
		t.Skip("behind a pooler,", why)
	}
}

func isPooled(url string) bool { return strings.Contains(url, "default_query_exec_mode=exec") }
