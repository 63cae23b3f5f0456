package systemtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/test/docblock"
	"github.com/penstock/penstock/internal/test/testserver"
)

// The guide's program and its test are built in an empty folder, from this repository instead of the clone, and behave as the page says.
func TestGoGuide(t *testing.T) {
	t.Parallel()
	g := newGoGuide(t, "sqlite:shop.db")
	blocks := docblock.Of(t, goGuidePage, "go")
	g.save("more.go", moreImports+blocks[1]+"\n"+blocks[2])
	g.save("shop_test.go", blocks[3])
	for _, block := range g.commands[:3] {
		g.follow(block)
	}
}

// The program and the test for PostgreSQL do the same there.
func TestGoGuideOnPostgreSQL(t *testing.T) {
	t.Parallel()
	const create, saidDatabase, saidBroker = "createdb -h localhost -U postgres shop\n", "postgres://postgres@localhost/shop", "amqp://guest:guest@localhost/"
	database, broker := testserver.Database(t, testserver.PostgresURL(t)), testserver.RabbitMQURL(t)
	t.Cleanup(func() { deleteQueue(t, broker, "shop-orders") })
	g := newGoGuide(t, database)
	program := docblock.Of(t, goGuidePage, "go")
	g.save("main.go", program[4])
	g.save("shop_test.go", program[5])
	g.save("tx_test.go", txTest+program[6])
	for _, said := range []string{create, saidDatabase, saidBroker} {
		if !strings.Contains(g.commands[3], said) {
			t.Fatalf("the page does not say %s any more", said)
		}
	}
	g.follow(g.commands[0])
	g.follow(strings.NewReplacer(create, "", saidDatabase, "'"+database+"'", saidBroker, broker).Replace(g.commands[3]))
	if n := queueLength(t, broker, "shop-orders"); n != 1 {
		t.Errorf("the queue has %d messages, want the one of the order", n)
	}
	if n := count(t, database, "select count(*) from shop_order"); n != 1 { // its message may be reclaimed by now
		t.Errorf("%d orders, want 1", n)
	}
	g.follow(g.commands[4])
}

// moreImports is for the functions of the page that its program does not call.
const moreImports = `package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/sink/rabbitmq"
	"github.com/penstock/penstock/work"
)

`

// txTest calls the page's helper for handlers that get a transaction. The writes of the second handler are rolled back.
const txTest = `package main

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/penstocktest"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/work"
)

func TestInTx(t *testing.T) {
	ctx, db := t.Context(), newDatabase(t)
	store := postgres.New(db, postgres.Options{})
	if err := setUp(ctx, db, store); err != nil {
		t.Fatal(err)
	}
	for _, want := range []error{nil, penstock.Permanent(errors.New("sold out"))} {
		if err := placeOrder(ctx, db, store, "ann", 10); err != nil {
			t.Fatal(err)
		}
		var mux work.TxMux[pgx.Tx]
		mux.Handle("", func(ctx context.Context, tx pgx.Tx, _ penstock.Job) error {
			if _, err := tx.Exec(ctx, "insert into shop_order values ('booked', 1)"); err != nil {
				return err
			}
			return want
		})
		if _, how := penstocktest.RunOne(t, store.Queue("emails"), inTx(db, mux.Handler())); (how == work.Done) != (want == nil) {
			t.Errorf("the job is %s, want %v", how, want)
		}
	}
	var booked int
	if err := db.QueryRow(ctx, "select count(*) from shop_order where customer = 'booked'").Scan(&booked); err != nil || booked != 1 {
		t.Errorf("%d rows, %v", booked, err)
	}
}

`

const goGuidePage = "docs/guides/go.md"

// goGuide follows the guide in a folder with the program.
type goGuide struct {
	*walk
	t        *testing.T
	commands []string
}

func newGoGuide(t *testing.T, database string) *goGuide {
	t.Helper()
	g := &goGuide{walk: newWalk(t, database), t: t, commands: docblock.Of(t, goGuidePage, "sh")}
	if len(g.commands) != 5 {
		t.Fatalf("%d blocks of commands, want 5", len(g.commands))
	}
	root := docblock.Root(t)
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	g.save("main.go", docblock.Of(t, goGuidePage, "go")[0])
	g.save("go.sum", string(sums))
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, goGuidePage))
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ := strings.Cut(string(module), "\ngo ")
	if version, _, _ = strings.Cut(version, "\n"); !strings.Contains(string(page), "Go "+version+" or later") {
		t.Errorf("the page does not name Go %s, which go.mod requires", version)
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOTOOLCHAIN"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		g.exports = append(g.exports, "export "+name+"='"+strings.TrimSpace(string(value))+"'")
	}
	g.exports = append(g.exports, "export GOPROXY=off GOSUMDB=off GOFLAGS=-mod=mod") // the modules of the repository suffice
	_, inModule, ok := strings.Cut(g.commands[0], "cd shop\n")
	if !ok {
		t.Fatalf("it does not begin in the folder shop:\n%s", g.commands[0])
	}
	g.commands[0] = inModule
	for i, block := range g.commands {
		g.commands[i] = strings.NewReplacer("../penstock/bin/", "", "=../penstock", "="+root).Replace(block)
	}
	return g
}

func (g *goGuide) save(name, text string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, name), []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
}
