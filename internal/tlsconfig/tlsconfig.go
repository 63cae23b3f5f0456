// Package tlsconfig is the tls part of every sink's configuration.
package tlsconfig

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/penstock/penstock"
)

// Client sets which servers a sink trusts, and its own certificate. The zero value trusts the
// system's authorities and has no certificate.
type Client struct {
	// CAFile holds the certificates of authorities to trust instead of the
	// system's, in PEM form.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile are the client's own certificate and its unencrypted
	// key, in PEM form, for servers that ask for one.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ServerName is the name in the server's certificate if it differs from the dialed host.
	ServerName string `yaml:"server_name"`
	// DangerouslySkipCertificateCheck accepts every server, so an attacker on the network can read
	// and change every message and learn the password.
	DangerouslySkipCertificateCheck bool `yaml:"dangerously_skip_certificate_check"`
}

// Validate returns a *penstock.FieldError of tls for a setting that cannot be used. It opens no
// file. scheme begins URLs with TLS, and used reports whether it begins this one.
func (c *Client) Validate(scheme string, used bool) error {
	if *c != (Client{}) && !used {
		return field("tls", "is set, but the URL is not "+scheme, "write "+scheme+" and the port for TLS, or remove tls")
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return field("tls", "has only one of cert_file and key_file", "set both, or none for a server that asks for no certificate")
	}
	return nil
}

// Load reads the files anew. If it is called for every connection, a renewed certificate is used
// from the next connection on. Versions before TLS 1.2 are refused. Errors are a
// *penstock.FieldError for tls.ca_file or tls.cert_file.
func (c *Client) Load() (*tls.Config, error) {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         c.ServerName,
		InsecureSkipVerify: c.DangerouslySkipCertificateCheck,
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, field("tls.ca_file", fmt.Sprintf("cannot be read (%v)", err), authorities)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, field("tls.ca_file", fmt.Sprintf("is %s, which holds no certificate", c.CAFile), authorities)
		}
	}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, field("tls.cert_file", fmt.Sprintf("and tls.key_file cannot be used (%v)", err), "name a certificate and its unencrypted key in PEM form")
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Warned returns log, or a logger that discards if it is nil. It warns there of DangerouslySkipCertificateCheck.
func (c *Client) Warned(log *slog.Logger) *slog.Logger {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if c.DangerouslySkipCertificateCheck {
		log.Warn("tls.dangerously_skip_certificate_check is set: anyone on the network can pose as the server")
	}
	return log
}

const authorities = "name a file with the authorities' certificates in PEM form, which this user may read"

func field(name, problem, hint string) error {
	return &penstock.FieldError{Field: name, Problem: problem, Hint: hint}
}

// Hint names the setting to change if err is that the server's certificate is not trusted or has another name. It is empty for any other
// error.
func Hint(err error) string {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "set tls.ca_file to the authority that signed the server's certificate"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "set tls.server_name to a name in the server's certificate"
	}
	return ""
}
