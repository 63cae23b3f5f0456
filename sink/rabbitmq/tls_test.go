package rabbitmq_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testserver"
	"github.com/penstock/penstock/sink/rabbitmq"
)

// TestTLS runs against RabbitMQ's own TLS listener, which wants a certificate
// from its clients.
func TestTLS(t *testing.T) {
	certs := makeCertificates(t)
	port, err := testserver.FreePort()
	check(t, err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	server := testserver.StartRabbitMQ(t,
		"listeners.ssl.1 = "+address,
		"ssl_options.cacertfile = "+certs.ca,
		"ssl_options.certfile = "+certs.serverCert,
		"ssl_options.keyfile = "+certs.serverKey,
		"ssl_options.verify = verify_peer",
		"ssl_options.fail_if_no_peer_cert = true",
	)
	room := newRoom(t, server.URL)
	good := rabbitmq.TLSConfig{CAFile: certs.ca, CertFile: certs.clientCert, KeyFile: certs.clientKey, ServerName: "mq.example"}
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
}

type certificates struct{ ca, serverCert, serverKey, clientCert, clientKey string }

// makeCertificates makes an authority, a server named mq.example and a client.
func makeCertificates(t *testing.T) certificates {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		check(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return file
	}
	var (
		authority    *x509.Certificate
		authorityKey *ecdsa.PrivateKey
	)
	issue := func(name string, c *x509.Certificate) (certFile, keyFile string) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		check(t, err)
		c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		if authority == nil {
			authority, authorityKey = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, authority, &key.PublicKey, authorityKey)
		check(t, err)
		if authority == c {
			authority, err = x509.ParseCertificate(der)
			check(t, err)
		}
		private, err := x509.MarshalECPrivateKey(key)
		check(t, err)
		return write(name+".pem", "CERTIFICATE", der), write(name+".key", "EC PRIVATE KEY", private)
	}
	var c certificates
	c.ca, _ = issue("authority", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	c.serverCert, c.serverKey = issue("server", &x509.Certificate{
		DNSNames: []string{"mq.example"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 2)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	c.clientCert, c.clientKey = issue("client", &x509.Certificate{
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	// What is issued is what Go itself would accept.
	_, err := tls.LoadX509KeyPair(c.serverCert, c.serverKey)
	check(t, err)
	return c
}
