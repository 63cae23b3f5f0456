package systemtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/docblock"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
)

// shop creates the database that the examples share.
func shop(t *testing.T, database string) {
	t.Helper()
	inStore(t, database, func(ctx context.Context, s driver.Store) error { return s.Migrate(ctx) })
	setup, err := os.ReadFile("../../../examples/shop.sql")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for range 2 { // the second time it changes nothing
		if _, err := conn.Exec(t.Context(), string(setup), pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
}

// inFolder runs a go command there.
func inFolder(t *testing.T, folder string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %q in %s: %v\n%s", args, folder, err, out)
	}
}

// startExample starts a program of examples/.
func startExample(t *testing.T, name string, env ...string) *process {
	t.Helper()
	programs, err := buildExamples()
	if err != nil {
		t.Fatal(err)
	}
	return startProgram(t, programs+name, env...)
}

func startProgram(t *testing.T, program string, env ...string) *process {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = env
	return startCommand(t, cmd)
}

// For an order that is placed at the service, the worker sends a mail and the consumer an invoice, once. Each program
// ends on request.
func TestExamples(t *testing.T) {
	t.Parallel()
	database, broker := postgrestest.Database(t), testserver.RabbitMQURL(t)
	shop(t, database)
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
	if _, err := channel.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = channel.QueueDelete(queue, false, false, false) })

	url := "PENSTOCK_DATABASE_URL=" + database
	service := startExample(t, "service", url, "LISTEN=127.0.0.1:0")
	service.says("listening on ")
	address := regexp.MustCompile(`http://\S+`).FindString(service.stderr.String())
	const orders = 10
	for n := range orders {
		body := fmt.Sprintf(`{"customer": "customer-%d", "total": %d}`, n%3, n)
		if status := post(t, address+"/orders", body); status != http.StatusCreated {
			t.Fatalf("order %d is answered with %d", n, status)
		}
	}
	if status := post(t, address+"/orders", `{"total": 1}`); status != http.StatusBadRequest {
		t.Errorf("an order of nobody is answered with %d", status)
	}

	worker := startExample(t, "worker", url)
	consumer := startExample(t, "consumer", url, "AMQP_URL="+broker, "QUEUE="+queue)
	relay := start(t, "relay", "--outbox", "orders", "--sink", strings.TrimSuffix(broker, "/")+"/?declare_queue="+queue, "--database-url", database)
	eventually(t, "every order is mailed about", func() bool {
		return count(t, database, "select count(*) from shop_order where mailed_at is not null") == orders
	})
	invoiced := func() int { return count(t, database, "select count(distinct body->>'id') from invoice") }
	eventually(t, "every order is invoiced", func() bool { return invoiced() == orders })

	for _, id := range []string{"again", "again", "last"} {
		m := amqp.Publishing{MessageId: id, Body: fmt.Appendf(nil, `{"id": %q}`, id)}
		if err := channel.PublishWithContext(t.Context(), "", queue, false, false, m); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "what came behind the repeated message is invoiced", func() bool { return invoiced() == orders+2 })
	for _, p := range []*process{service, worker, consumer, relay} {
		p.signal(syscall.SIGTERM)
		if o := p.wait(); o.code != 0 {
			t.Errorf("%q ends with %d: %s", p.cmd.Path, o.code, o.stderr)
		}
	}
	if n := count(t, database, "select count(*) from invoice"); n != orders+2 {
		t.Errorf("there are %d invoices, want one of each message", n)
	}
}

func post(t *testing.T, url, body string) (status int) {
	t.Helper()
	answer, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// Each example of an ORM writes an order and its message. They are a separate module, whose dependencies come
// through the Go proxy.
func TestExamplesOfORMs(t *testing.T) {
	testseed.Soak(t) // make lint compiles them
	t.Parallel()     // most of it is compiling
	if ci, _ := strconv.ParseBool(os.Getenv("CI")); !ci {
		cmd := exec.CommandContext(t.Context(), "go", "mod", "download")
		cmd.Dir = "../../../examples/orms"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("the modules cannot be had: %v\n%s", err, out)
		}
	}
	inFolder(t, "../../../examples/orms", "generate", "./...")
	programs := t.TempDir()
	inFolder(t, "../../../examples/orms", "build", "-o", programs, "./sql", "./sqlx", "./gorm", "./bun", "./ent")
	for _, name := range []string{"sql", "sqlx", "gorm", "bun", "ent"} {
		t.Run(name, func(t *testing.T) {
			database := postgrestest.Database(t)
			shop(t, database)
			if o := startProgram(t, filepath.Join(programs, name), "PENSTOCK_DATABASE_URL="+database).wait(); o.code != 0 {
				t.Fatalf("it ends with %d: %s", o.code, o.stderr)
			}
			if n := count(t, database, `select count(*) from shop_order o join penstock.orders m
				on m.key = o.customer and convert_from(m.payload, 'UTF8')::jsonb = jsonb_build_object('id', o.id, 'total', o.total)`); n != 1 {
				t.Errorf("%d orders have their message, want 1", n)
			}
		})
	}
}

// The scripts for pgbench work, with the command of their page and a number of transactions instead of a time.
func TestExamplesOfPgbench(t *testing.T) {
	server := testserver.StartPostgres(t)
	if _, err := os.Stat(filepath.Join(server.Bin, "pgbench")); err != nil {
		t.Skip("the server came without pgbench")
	}
	shop(t, server.URL)
	commands := docblock.Commands(t, docblock.Of(t, "examples/pgbench/README.md", "sh")[0])
	pgbench := func(script, clients, transactions string) {
		t.Helper()
		args := slices.Clone(commands[0].Args)
		for of, here := range map[string]string{"8": clients, "-T": "-t", "10": transactions, "examples/pgbench/publish.sql": "../../../examples/pgbench/" + script + ".sql", "$PENSTOCK_DATABASE_URL": server.URL} {
			i := slices.Index(args, of)
			if i < 0 {
				t.Fatalf("%q has no %s", args, of)
			}
			args[i] = here
		}
		program(t, server, args[0], args[1:]...)
	}
	const jobs = "select ready::int + waiting::int from penstock.queue_status('emails')"
	for script, check := range map[string]string{
		"publish": "select count(*) from penstock.orders m join (select customer, count(*) from shop_order group by 1) o on o.customer = m.key",
		"enqueue": jobs,
	} {
		pgbench(script, "2", "50")
		if n := count(t, server.URL, check); n != 100 {
			t.Errorf("%s leaves %d, want 100", script, n)
		}
	}
	pgbench("dequeue", "1", "100")
	if n := count(t, server.URL, jobs); n != 0 {
		t.Errorf("dequeue leaves %d", n)
	}
}
