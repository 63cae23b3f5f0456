// Package testcerts makes the certificates of one test: an authority, servers
// and clients.
package testcerts

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
	"testing"
	"time"

	"github.com/penstock/penstock/internal/test/suite"
)

// Authority signs certificates. Its own is in CAFile, in PEM form.
type Authority struct {
	CAFile string
	Pool   *x509.CertPool // trusts this authority alone

	dir    string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64
}

// Pair is a certificate and its key, as files in PEM form (the key as PKCS #8,
// unencrypted) and as Go has it.
type Pair struct {
	CertFile, KeyFile string
	Certificate       tls.Certificate
}

// New makes an authority, whose files are gone with the test.
func New(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{dir: tb.TempDir(), Pool: x509.NewCertPool()}
	p := a.Issue(tb, func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	})
	a.CAFile = p.CertFile
	a.Pool.AddCert(a.cert)
	return a
}

// Server issues a certificate for a server by these names and IP addresses.
func (a *Authority) Server(tb testing.TB, names ...string) Pair {
	tb.Helper()
	return a.Issue(tb, func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		for _, name := range names {
			if ip := net.ParseIP(name); ip != nil {
				c.IPAddresses = append(c.IPAddresses, ip)
			} else {
				c.DNSNames = append(c.DNSNames, name)
			}
		}
	})
}

// Client issues a certificate for a client.
func (a *Authority) Client(tb testing.TB) Pair {
	tb.Helper()
	return a.Issue(tb, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
}

// Mutual is the configuration of a server by these names that requires its clients to have a
// certificate of the same authority.
func (a *Authority) Mutual(tb testing.TB, names ...string) *tls.Config {
	tb.Helper()
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{a.Server(tb, names...).Certificate},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.Pool,
	}
}

// Issue signs the certificate that change makes of one for a signature, valid from an hour ago
// for two hours. The first, New's own, signs itself.
func (a *Authority) Issue(tb testing.TB, change func(*x509.Certificate)) Pair {
	tb.Helper()
	a.serial++
	c := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: fmt.Sprintf("penstock test %d", a.serial)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	change(c)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	suite.OK(tb, err)
	if a.cert == nil {
		a.cert, a.key = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	suite.OK(tb, err)
	if a.cert == c {
		a.cert, err = x509.ParseCertificate(der)
		suite.OK(tb, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	suite.OK(tb, err)
	p := Pair{CertFile: a.write(tb, "pem", "CERTIFICATE", der), KeyFile: a.write(tb, "key", "PRIVATE KEY", private)}
	p.Certificate, err = tls.LoadX509KeyPair(p.CertFile, p.KeyFile)
	suite.OK(tb, err)
	return p
}

func (a *Authority) write(tb testing.TB, ending, kind string, der []byte) string {
	tb.Helper()
	file := filepath.Join(a.dir, fmt.Sprintf("%d.%s", a.serial, ending))
	suite.OK(tb, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return file
}
