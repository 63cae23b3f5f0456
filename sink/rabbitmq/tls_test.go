package rabbitmq_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testcerts"
	"github.com/penstock/penstock/internal/testserver"
	"github.com/penstock/penstock/sink/rabbitmq"
)

// TestTLS runs against RabbitMQ's own TLS listener, which wants a certificate
// from its clients.
func TestTLS(t *testing.T) {
	authority := testcerts.New(t)
	cert, client := authority.Server(t, "mq.example", "127.0.0.2"), authority.Client(t)
	port, err := testserver.FreePort()
	check(t, err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	server := testserver.StartRabbitMQ(t,
		"listeners.ssl.1 = "+address,
		"ssl_options.cacertfile = "+authority.CAFile,
		"ssl_options.certfile = "+cert.CertFile,
		"ssl_options.keyfile = "+cert.KeyFile,
		"ssl_options.verify = verify_peer",
		"ssl_options.fail_if_no_peer_cert = true",
	)
	room := newRoom(t, server.URL)
	good := rabbitmq.TLSConfig{CAFile: authority.CAFile, CertFile: client.CertFile, KeyFile: client.KeyFile, ServerName: "mq.example"}
	for _, c := range []struct {
		name   string
		change func(*rabbitmq.TLSConfig)
		want   string // "" if it works
	}{
		{"in order", func(*rabbitmq.TLSConfig) {}, ""},
		{"unknown authority", func(c *rabbitmq.TLSConfig) { c.CAFile = "" }, "set tls.ca_file"},
		{"another name", func(c *rabbitmq.TLSConfig) { c.ServerName = "" }, "set tls.server_name"},
		{"no check of the certificate", func(c *rabbitmq.TLSConfig) {
			c.CAFile, c.ServerName, c.DangerouslySkipCertificateCheck = "", "", true
		}, ""},
		{"no client certificate", func(c *rabbitmq.TLSConfig) { c.CertFile, c.KeyFile = "", "" }, "RabbitMQ"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := room.config(t, address)
			cfg.URL = strings.Replace(cfg.URL, "amqp://", "amqps://", 1)
			cfg.TLS = good
			c.change(&cfg.TLS)
			errs := open(t, cfg).Send(patient(t), orders(1000))
			if c.want != "" {
				wantUnavailable(t, errs, c.want)
			} else if errs != nil {
				t.Error(errs[0])
			}
		})
	}
	t.Run("of several hosts each by its own name", func(t *testing.T) {
		cfg := room.config(t, "127.0.0.2:1,"+address) // the certificate names the one that is not there
		cfg.URL = strings.Replace(cfg.URL, "amqp://", "amqps://", 1)
		cfg.TLS = good
		cfg.TLS.ServerName = ""
		wantUnavailable(t, open(t, cfg).Send(patient(t), orders(1)), "set tls.server_name")
	})
}
