// Package sinktest is the suite that every sink passes.
//
// A driver's test describes, once, how to make a destination for it, and calls
// Run:
//
//	func TestConformance(t *testing.T) {
//		sinktest.Run(t, sinktest.Harness{
//			Features: sinktest.Features{ReadBack: true, Network: true, Routes: true},
//			New: func(t *testing.T) *sinktest.Destination {
//				queue := declareQueue(t)             // with the vendor's client, cleaned up by t.Cleanup
//				proxy := tcpproxy.New(t, brokerAddr) // so that the network can fail
//				return &sinktest.Destination{
//					Topics: []string{"orders.placed"},
//					Open: func(t *testing.T, log *slog.Logger) driver.Sink { … },
//					Drain: func(t *testing.T, n int) []sinktest.Received { … },
//					Down: proxy.Refuse, Up: proxy.Resume, Stall: …,
//				}
//			},
//		})
//	}
//
// What brokers do differently is declared in Features and never asked for by
// name. A feature that is declared without what its tests need is a failure of
// the suite; one that is not declared leaves its tests out, visibly.
package sinktest

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testseed"
)

// Harness describes a driver for the suite.
type Harness struct {
	Features Features
	// New makes a destination for one test: a separate queue or stream, gone when the test ends.
	New func(t *testing.T) *Destination
	// Only, if given, is for a sink that passes the whole suite under other conditions already: the
	// cases that this one can change, for example Transport. In the long form all run.
	Only []string
}

// Features are the abilities of the driver and its broker.
type Features struct {
	// ReadBack: sent messages can be read (Destination.Drain).
	ReadBack bool
	// InOrder: the sink is an InOrderSink and keeps the promise.
	InOrder bool
	// Network: there is a connection that can fail (Down, Up, Stall).
	Network bool
	// Durable: confirmed messages survive the broker's restart (Restart).
	Durable bool
	// Routes: a message can have nowhere to go (Unroutable).
	Routes bool
	// Refuses: there are messages that can never be sent (Bad).
	Refuses bool
	// Secrets: the configuration holds a password or token (Secrets, OpenDenied).
	Secrets bool
	// Deduplicates: the broker drops a second message with the same id.
	Deduplicates bool
}

// Destination is one place to send to, and the means to see and disturb it.
type Destination struct {
	// Topics that the destination takes, at least one.
	Topics []string
	// Open opens a sink on the destination; the suite closes it. The sink logs
	// to log and nowhere else.
	Open func(t *testing.T, log *slog.Logger) driver.Sink
	// LargePayload is how many bytes of any kind a large message has, 1 MiB unless the broker takes less.
	LargePayload int
	// Drain takes messages out of the destination, in the order in which they
	// lie there, without using the sink's own code. It waits until there are n
	// and returns those and what else is there by then; it gives up after
	// Patience and returns what it has.
	Drain func(t *testing.T, n int) []Received

	// Down cuts every connection to the broker and refuses new ones; Up ends
	// this, and ends Stall.
	Down, Up func()
	// Stall leaves connections open and lets nothing through, as a dead network
	// does.
	Stall func()

	// Restart stops the broker, not gracefully if it can be helped, and starts
	// it again with the same data.
	Restart func(t *testing.T)

	// Unroutable is a message that the broker would take and send nowhere.
	Unroutable *penstock.Message
	// Bad are messages that can never be sent.
	Bad []Bad

	// Secrets are texts that must not show in errors and logs.
	Secrets []string
	// OpenDenied opens a sink whose secret (one of Secrets) the broker rejects.
	OpenDenied func(t *testing.T, log *slog.Logger) driver.Sink
}

// Bad is a message that can never be sent: the sink answers Permanent.
type Bad struct {
	Name    string
	Message penstock.Message
}

// Received is a message as a consumer of the broker finds it.
type Received struct {
	ID      string
	Key     string
	Topic   string
	Payload []byte
	// Headers at least has the message's own headers under their exact names.
	Headers   map[string]string
	CreatedAt time.Time
}

// Patience is how long the suite waits for what must happen. It only ever ends
// a test that fails.
const Patience = 5 * time.Minute

// Transport lists what another way to the broker can change (TLS, a proxy, another version of the
// protocol). It can change that bytes arrive, what a lost or silent connection looks like, that
// nothing of it outlives Close, and its secrets.
var Transport = []string{
	"everything arrives", "bytes survive", "a large batch", "a bad message fails alone",
	"an outage is Unavailable and heals", "opened while the broker is down", "never sent, never confirmed", "cut in the middle of sends",
	"Close does not wait for ever", "secrets stay secret",
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	for _, name := range h.Only {
		if !slices.ContainsFunc(cases, func(c testCase) bool { return c.name == name }) {
			t.Fatalf("sinktest: Harness.Only names %q, which is no case", name)
		}
	}
	for _, c := range cases {
		if len(h.Only) > 0 && !slices.Contains(h.Only, c.name) && !testseed.Long() {
			continue // in the long form
		}
		t.Run(c.name, func(t *testing.T) {
			if c.needs != nil && !c.needs(h.Features) {
				t.Skipf("the sink does not declare the feature")
			}
			d := h.New(t)
			h.Features.check(t, d)
			c.run(&env{T: t, features: h.Features, Destination: d, log: newLog(t, d.Secrets)})
		})
	}
}

type testCase struct {
	name  string
	needs func(Features) bool // nil: every sink
	run   func(*env)
}

var cases = []testCase{
	{"nothing to send", nil, nothingToSend},
	{"everything arrives", readBack, everythingArrives},
	{"awkward characters", readBack, awkwardCharacters},
	{"bytes survive", readBack, bytesSurvive},
	{"a large batch", readBack, largeBatch},
	{"a second delivery is accepted", readBack, secondDelivery},
	{"order per key", readBack, orderPerKey},
	{"order within one Send", inOrder, orderWithinSend},
	{"KeepsOrder is what is declared", nil, keepsOrder},
	{"a bad message fails alone", refuses, badFailsAlone},
	{"only bad messages", refuses, onlyBad},
	{"unroutable is a failure", routes, unroutableFails},
	{"an outage is Unavailable and heals", network, outageHeals},
	{"opened while the broker is down", network, openedWhileDown},
	{"never sent, never confirmed", network, stallConfirmsNothing},
	{"cut in the middle of sends", network, cutWhileSending},
	{"cancel is prompt", network, cancelIsPrompt},
	{"ctx has ended already", nil, endedContext},
	{"confirmed survives a restart", durable, survivesRestart},
	{"killed again and again", readBackDurable, killedAgainAndAgain},
	{"Close twice, Send after Close", nil, closeTwice},
	{"concurrent Sends, for which Close waits", nil, closeWaits},
	{"Close does not wait for ever", network, closeGivesUp},
	{"secrets stay secret", secrets, secretsStaySecret},
}

func readBack(f Features) bool { return f.ReadBack }
func inOrder(f Features) bool  { return f.InOrder }
func network(f Features) bool  { return f.Network }
func durable(f Features) bool  { return f.Durable }
func routes(f Features) bool   { return f.Routes }
func refuses(f Features) bool  { return f.Refuses }

func readBackDurable(f Features) bool { return f.ReadBack && f.Durable }
func secrets(f Features) bool         { return f.Secrets }

// check fails the test if the harness promises a feature without its hook.
func (f Features) check(t *testing.T, d *Destination) {
	t.Helper()
	need := func(declared bool, feature, field string, given bool) {
		if declared && !given {
			t.Fatalf("sinktest: Features.%s is declared, Destination.%s is missing", feature, field)
		}
	}
	need(true, "(always)", "Open", d.Open != nil)
	need(true, "(always)", "Topics", len(d.Topics) > 0)
	need(f.ReadBack, "ReadBack", "Drain", d.Drain != nil)
	need(f.Network, "Network", "Down", d.Down != nil)
	need(f.Network, "Network", "Up", d.Up != nil)
	need(f.Network, "Network", "Stall", d.Stall != nil)
	need(f.Durable, "Durable", "Restart", d.Restart != nil)
	need(f.Routes, "Routes", "Unroutable", d.Unroutable != nil)
	need(f.Refuses, "Refuses", "Bad", len(d.Bad) > 0)
	need(f.Secrets, "Secrets", "Secrets", len(d.Secrets) > 0)
	need(f.Secrets, "Secrets", "OpenDenied", d.OpenDenied != nil)
}
