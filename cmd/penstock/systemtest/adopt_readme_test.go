package systemtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
)

// words splits a simple line of shell from the documentation, without its comment.
func words(line string) (all []string) {
	for _, w := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1) {
		if w == "#" {
			break
		}
		all = append(all, strings.Trim(w, "'"))
	}
	return all
}

// The command in getting-started.md for an existing table delivers it: rows of every type are in
// the named queue, and marked.
func TestReadmeAdoptsATable(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(gettingStarted)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^penstock (relay --adopt .*)$`).FindStringSubmatch(string(readme))
	if line == nil {
		t.Fatal("getting-started.md relays no adopted table")
	}
	url := postgrestest.Database(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	const rows = 500
	if _, err := conn.Exec(t.Context(), outboxMessages+`; insert into outbox_messages (id, type, content, occurred_on_utc)
		select gen_random_uuid(), 'Type' || n % 7, '{}', now() from generate_series(1, 500) n`); err != nil {
		t.Fatal(err)
	}

	broker := testserver.RabbitMQURL(t)
	connection, err := amqp.Dial(broker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	channel, err := connection.Channel()
	if err != nil {
		t.Fatal(err)
	}
	queue := fmt.Sprintf("penstock_test_%08x", rand.Uint32())
	t.Cleanup(func() { _, _ = channel.QueueDelete(queue, false, false, false) })

	args := append(words(line[1]), "--database-url", url)
	for i := range args { // the servers of this test, and a separate queue
		args[i] = strings.Replace(args[i], "amqp://localhost/", strings.TrimSuffix(broker, "/")+"/", 1)
		args[i] = strings.Replace(args[i], "declare_queue=orders", "declare_queue="+queue, 1)
	}
	relay := start(t, args...)
	eventually(t, "every row is marked", func() bool {
		var waiting int
		if err := conn.QueryRow(t.Context(), "select count(*) from outbox_messages where processed_on_utc is null").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		return waiting == 0
	})
	relay.signal(syscall.SIGTERM)
	if o := relay.wait(); o.code != 0 {
		t.Errorf("the relay ended with %d: %s", o.code, relay.stderr.tail())
	}
	q, err := channel.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if q.Messages != rows {
		t.Errorf("%d messages are in the queue, want %d", q.Messages, rows)
	}
}

// A URL with parameters is quoted wherever a user may copy it: zsh treats a bare ? as a pattern,
// and every shell treats a bare & as the end of the command.
func TestURLsOfDocumentationAreQuoted(t *testing.T) {
	bare := regexp.MustCompile(`--(?:sink|database-url|format)[ =][^'"\s` + "`" + `]*[?&]`)
	for _, in := range []string{"../../../*.md", "../../../docs/*/*.md", "../../../examples/*", "../*.go", "../internal/cli/*.go", "../internal/cli/*/*.go"} {
		files, err := filepath.Glob(in)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", in, files, err)
		}
		for _, file := range files {
			if info, err := os.Stat(file); err != nil || info.IsDir() || strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for i, l := range strings.Split(string(text), "\n") {
				if bare.MatchString(l) {
					t.Errorf("%s:%d: %s", file, i+1, l)
				}
			}
		}
	}
}
