package nats_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/sink/nats"
)

func TestLoginWithNKey(t *testing.T) {
	user := must(nkeys.CreateUser())
	file := filepath.Join(t.TempDir(), "relay.nk")
	if err := os.WriteFile(file, must(user.Seed()), 0o600); err != nil {
		t.Fatal(err)
	}
	b := startBroker(t, func(o *server.Options) {
		o.Nkeys = []*server.NkeyUser{{Nkey: must(user.PublicKey())}}
	})
	sendAndRead(t, b, nats.Config{NKeyFile: file}, must(natsgo.NkeyOptionFromSeed(file)))

	stranger := filepath.Join(t.TempDir(), "stranger.nk")
	if err := os.WriteFile(stranger, must(must(nkeys.CreateUser()).Seed()), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, nats.Config{URL: b.addr(), NKeyFile: stranger})
	wantError(t, sendOne(t, s, messages("orders.placed", "x")[0]), unavailable, "Authorization Violation", "nkey_file")
}

// A .creds file and a server that trusts an operator, as hosted NATS does.
func TestLoginWithCredentials(t *testing.T) {
	operator, account, user := must(nkeys.CreateOperator()), must(nkeys.CreateAccount()), must(nkeys.CreateUser())
	operatorClaims := jwt.NewOperatorClaims(must(operator.PublicKey()))
	must(operatorClaims.Encode(operator))
	accountClaims := jwt.NewAccountClaims(must(account.PublicKey()))
	accountClaims.Limits.JetStreamLimits = jwt.JetStreamLimits{
		DiskStorage: jwt.NoLimit, MemoryStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit, MaxAckPending: jwt.NoLimit,
	}
	accountJWT := must(accountClaims.Encode(operator))
	userJWT := must(jwt.NewUserClaims(must(user.PublicKey())).Encode(account))
	file := filepath.Join(t.TempDir(), "relay.creds")
	if err := os.WriteFile(file, must(jwt.FormatUserConfig(userJWT, must(user.Seed()))), 0o600); err != nil {
		t.Fatal(err)
	}
	resolver := &server.MemAccResolver{}
	if err := resolver.Store(must(account.PublicKey()), accountJWT); err != nil {
		t.Fatal(err)
	}
	system := must(nkeys.CreateAccount())
	systemJWT := must(jwt.NewAccountClaims(must(system.PublicKey())).Encode(operator))
	if err := resolver.Store(must(system.PublicKey()), systemJWT); err != nil {
		t.Fatal(err)
	}
	b := startBroker(t, func(o *server.Options) {
		o.TrustedOperators = []*jwt.OperatorClaims{operatorClaims}
		o.AccountResolver = resolver
		o.SystemAccount = must(system.PublicKey())
	})
	sendAndRead(t, b, nats.Config{CredentialsFile: file}, natsgo.UserCredentials(file))
}

// A password that is wrong today may be right tomorrow: the sink keeps trying, even after the
// client library would have given up.
func TestLoginCorrectedOnTheServer(t *testing.T) {
	b := startBroker(t, func(o *server.Options) { o.Username, o.Password = "relay", "old" })
	proxy := tcpproxy.New(t, b.addr())
	s := open(t, nats.Config{URL: proxy.Addr(), User: "relay", Password: "new"})
	msgs, ctx := messages("orders.placed", "1"), patient(t)
	for proxy.Accepted() < 4 { // more than the library's two
		wantError(t, sendOne(t, s, msgs[0]), unavailable, "Authorization Violation", "check user, password")
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("the sink gave up after %d attempts", proxy.Accepted())
		}
	}
	b.stop()
	b.opts.Password = "new"
	b.start(t)
	r := &reader{url: b.addr(), opts: []natsgo.Option{natsgo.UserInfo("relay", "new")}}
	r.createStream(t, jetstream.StreamConfig{})
	heals(t, s, msgs[0])
}

// heals sends as the relay does, again and again, until it works.
func heals(t *testing.T, s *nats.Sink, m penstock.Message) {
	t.Helper()
	ctx := patient(t)
	for {
		err := sendOne(t, s, m)
		if err == nil {
			return
		}
		wantError(t, err, unavailable)
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("the server is back and Send still fails")
		}
	}
}

func sendAndRead(t *testing.T, b *broker, cfg nats.Config, reading natsgo.Option) {
	t.Helper()
	r := &reader{url: b.addr(), opts: []natsgo.Option{reading}}
	r.createStream(t, jetstream.StreamConfig{})
	cfg.URL = b.addr()
	mustSend(t, open(t, cfg), messages("orders.placed", "1", "2"))
	if got := r.drain(t, testStream, 2); len(got) != 2 || got[0].ID != "1" || got[1].ID != "2" {
		t.Errorf("drained %v", got)
	}
}
