package nats_test

import (
	"crypto/tls"
	"testing"

	"github.com/penstock/penstock/internal/test/testcerts"
	"github.com/penstock/penstock/sink/nats"
)

// certificates are those of a server for 127.0.0.1 and of a client.
type certificates struct {
	server *tls.Config
	client nats.TLSConfig
}

func makeCertificates(tb testing.TB) certificates {
	tb.Helper()
	authority := testcerts.New(tb)
	pair := authority.Client(tb)
	return certificates{
		server: authority.Mutual(tb, "127.0.0.1"),
		client: nats.TLSConfig{CAFile: authority.CAFile, CertFile: pair.CertFile, KeyFile: pair.KeyFile},
	}
}
