package kafka_test

import (
	"crypto/tls"
	"testing"

	"github.com/penstock/penstock/internal/test/testcerts"
	"github.com/penstock/penstock/sink/kafka"
)

// certificates are those of a server by the name of kafka.example and of a
// client, for the sink and for a reader.
type certificates struct {
	server, reader *tls.Config
	client         kafka.TLSConfig
}

func makeCertificates(tb testing.TB) certificates {
	tb.Helper()
	authority := testcerts.New(tb)
	pair := authority.Client(tb)
	c := certificates{
		server: authority.Mutual(tb, "kafka.example"),
		client: kafka.TLSConfig{CAFile: authority.CAFile, CertFile: pair.CertFile, KeyFile: pair.KeyFile, ServerName: "kafka.example"},
	}
	var err error
	c.reader, err = c.client.Load()
	check(tb, err)
	return c
}
