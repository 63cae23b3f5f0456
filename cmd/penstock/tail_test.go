package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/terminal"
)

func TestTailChooses(t *testing.T) {
	eachStore(t, func(t *testing.T, d *desk) {
		d.outbox("orders",
			penstock.Message{ID: "a1", Topic: "order.paid", Key: "42", Headers: map[string]string{"region": "eu"}},
			penstock.Message{ID: "a2", Topic: "order.sent.late", Key: "42"},
			penstock.Message{ID: "a3", Topic: "order.paid", Key: "7", Headers: map[string]string{"region": "us"}},
			penstock.Message{ID: "a4", Topic: "invoice.paid"})
		for args, want := range map[string]string{
			"":                                        "a1 a2 a3 a4",
			"--topic order.paid":                      "a1 a3",
			"--topic order.> --key 42":                "a1 a2",
			"--topic *.paid":                          "a1 a3 a4",
			"--topic order.sent.* --topic invoice.>":  "a2 a4",
			"--header region=*":                       "a1 a3",
			"--header region=eu --key 7":              "",
			"--key 42 --limit 1":                      "a1",
			"--topic order.paid --limit 2":            "a1 a3",
			"--topic invoice.paid --key 42 --limit 1": "",
		} {
			same(t, args, tailed(t, d, strings.Fields(args)...), want)
		}
	})
}

// Messages that are passed over do not count, however many there are.
func TestTailFindsWhatIsRare(t *testing.T) {
	d := urlDesk(t, sqliteFile(t))
	var msgs []penstock.Message
	for i := range 1200 {
		m := penstock.Message{ID: fmt.Sprint("m", i), Topic: "common"}
		if i%400 == 399 {
			m.Topic = "rare"
		}
		msgs = append(msgs, m)
	}
	d.outbox("orders", msgs...)
	same(t, "two of three", tailed(t, d, "--topic", "rare", "-n", "2"), "m399 m799")
	same(t, "all", tailed(t, d, "--topic", "rare"), "m399 m799 m1199")
}

func TestTailRefuses(t *testing.T) {
	t.Parallel()
	d := urlDesk(t, sqliteFile(t))
	d.outbox("orders")
	for args, want := range map[string]string{
		"--key=":            "--key is empty",
		"--header region":   "write NAME=VALUE",
		"--topic order.p*":  "* and > stand for whole words",
		"--start now":       "add --follow",
		"--start yesterday": "write beginning or now",
		"--topic order.>.a": "> before the end",
	} {
		d.cli(append([]string{"tail", "orders"}, strings.Fields(args)...)...).wants(t, terminal.ExitUsage, want)
	}
}

// tailed are the ids that tail prints.
func tailed(t *testing.T, d *desk, args ...string) string {
	t.Helper()
	var shown []penstock.Message
	for line := range strings.Lines(d.must(append([]string{"tail", "orders", "--json"}, args...)...)) {
		var m penstock.Message
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		shown = append(shown, m)
	}
	return ids(shown)
}
