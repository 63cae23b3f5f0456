package tlsconfig_test

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/testcerts"
	"github.com/penstock/penstock/internal/tlsconfig"
)

// Loaded settings are tried against a server that requires a certificate.
func TestHandshake(t *testing.T) {
	authority, other := testcerts.New(t), testcerts.New(t)
	server, client, stranger := authority.Mutual(t, "mq.example"), authority.Client(t), other.Client(t)
	good := tlsconfig.Client{CAFile: authority.CAFile, CertFile: client.CertFile, KeyFile: client.KeyFile, ServerName: "mq.example"}
	for _, c := range []struct {
		name   string
		change func(*tlsconfig.Client)
		says   string // "" if it works
	}{
		{"in order", func(*tlsconfig.Client) {}, ""},
		{"the system's authorities", func(c *tlsconfig.Client) { c.CAFile = "" }, "unknown authority"},
		{"another authority", func(c *tlsconfig.Client) { c.CAFile = other.CAFile }, "unknown authority"},
		{"another name", func(c *tlsconfig.Client) { c.ServerName = "kafka.example" }, "mq.example"},
		{"no check", func(c *tlsconfig.Client) {
			c.CAFile, c.ServerName, c.DangerouslySkipCertificateCheck = "", "kafka.example", true
		}, ""},
		{"no certificate", func(c *tlsconfig.Client) { c.CertFile, c.KeyFile = "", "" }, "certificate required"},
		{"another authority's certificate", func(c *tlsconfig.Client) {
			c.CertFile, c.KeyFile = stranger.CertFile, stranger.KeyFile
		}, "certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := good
			c.change(&cfg)
			config, err := cfg.Load()
			if err != nil {
				t.Fatal(err)
			}
			err = handshake(t, server, config)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; want %q", err, c.says)
			}
		})
	}
	old := server.Clone()
	old.MaxVersion, old.MinVersion = tls.VersionTLS11, tls.VersionTLS10
	config, err := good.Load()
	if err != nil {
		t.Fatal(err)
	}
	if handshake(t, old, config) == nil {
		t.Error("TLS 1.1 is spoken")
	}
}

// handshake is the client's error of a handshake with the server and of the first byte after it.
// They talk over TCP, because it buffers what one sends while the other sends an alert.
func handshake(t *testing.T, server, client *tls.Config) error {
	listener, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	over := make(chan struct{})
	defer close(over)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Write([]byte{1}) // in TLS 1.3 the client learns only now that it is refused
		<-over                       // a connection that is closed too early loses the alert
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = tls.Client(conn, client).Read(make([]byte, 1))
	return err
}

func TestMistakes(t *testing.T) {
	authority := testcerts.New(t)
	pair := authority.Client(t)
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cfg           tlsconfig.Client
		field, says   string
		inConfigAlone bool // found without opening a file
	}{
		{tlsconfig.Client{CertFile: pair.CertFile}, "tls", "only one of", true},
		{tlsconfig.Client{KeyFile: pair.KeyFile}, "tls", "only one of", true},
		{tlsconfig.Client{CAFile: "/does/not/exist"}, "tls.ca_file", "cannot be read", false},
		{tlsconfig.Client{CAFile: empty}, "tls.ca_file", "holds no certificate", false},
		{tlsconfig.Client{CertFile: "/does/not/exist", KeyFile: pair.KeyFile}, "tls.cert_file", "cannot be used", false},
		{tlsconfig.Client{CertFile: pair.CertFile, KeyFile: authority.Client(t).KeyFile}, "tls.cert_file", "cannot be used", false},
	} {
		err := c.cfg.Validate("kafkas://", true)
		if !c.inConfigAlone {
			if err != nil {
				t.Errorf("Validate of %+v: %v", c.cfg, err)
			}
			_, err = c.cfg.Load()
		}
		var f *penstock.FieldError
		if !errors.As(err, &f) || f.Field != c.field || !strings.Contains(f.Problem, c.says) || f.Hint == "" {
			t.Errorf("%+v: %v; want %s: %q", c.cfg, err, c.field, c.says)
		}
	}
}

// The next call uses a renewed file.
func TestLoadReadsAnew(t *testing.T) {
	authority := testcerts.New(t)
	old, renewed := authority.Client(t), authority.Client(t)
	cfg := tlsconfig.Client{CertFile: old.CertFile, KeyFile: old.KeyFile}
	if _, err := cfg.Load(); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{renewed.CertFile: old.CertFile, renewed.KeyFile: old.KeyFile} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	config, err := cfg.Load()
	if err != nil {
		t.Fatal(err)
	}
	if string(config.Certificates[0].Certificate[0]) != string(renewed.Certificate.Certificate[0]) {
		t.Error("the certificate is still the old one")
	}
}
