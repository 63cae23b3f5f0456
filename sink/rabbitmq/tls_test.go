package rabbitmq_test

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/sink/rabbitmq"
)

// tls is RabbitMQ's own listener.
func (b *broker) tls(t *testing.T) {
	client, address := b.authority.Client(t), b.tlsAddress
	room := newRoom(t, b.URL)
	good := rabbitmq.TLSConfig{CAFile: b.authority.CAFile, CertFile: client.CertFile, KeyFile: client.KeyFile, ServerName: "mq.example"}
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
