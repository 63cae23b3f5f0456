package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// config reads the files each time it is called, so that a certificate that was
// renewed is used by the next client.
func (c *TLSConfig) config() (*tls.Config, error) {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         c.ServerName, // empty: the library sets the broker's host
		InsecureSkipVerify: c.DangerouslySkipCertificateCheck,
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, field("tls.ca_file", fmt.Sprintf("cannot be read (%v)", err), "name a file with the authority's certificates in PEM form")
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, field("tls.ca_file", fmt.Sprintf("%s holds no certificate", c.CAFile), "name a file with the authority's certificates in PEM form")
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
