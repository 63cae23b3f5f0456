package nats_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock/sink/nats"
)

// certificates are made for one test: an authority, a server for 127.0.0.1 and
// a client.
type certificates struct {
	server *tls.Config
	client nats.TLSConfig
}

func makeCertificates(t testing.TB) certificates {
	t.Helper()
	dir := t.TempDir()
	caKey := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER := must(x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey))
	ca = must(x509.ParseCertificate(caDER))
	caFile := writePEM(t, dir, "ca.pem", "CERTIFICATE", caDER)

	issue := func(name string, serial int64, change func(*x509.Certificate)) (certFile, keyFile string) {
		key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		c := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
		change(c)
		der := must(x509.CreateCertificate(rand.Reader, c, ca, &key.PublicKey, caKey))
		return writePEM(t, dir, name+".pem", "CERTIFICATE", der),
			writePEM(t, dir, name+".key", "EC PRIVATE KEY", must(x509.MarshalECPrivateKey(key)))
	}
	serverCert, serverKey := issue("server", 2, func(c *x509.Certificate) {
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	clientCert, clientKey := issue("client", 3, func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	})
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	return certificates{
		server: &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{must(tls.LoadX509KeyPair(serverCert, serverKey))},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		},
		client: nats.TLSConfig{CAFile: caFile, CertFile: clientCert, KeyFile: clientKey},
	}
}

func writePEM(t testing.TB, dir, name, kind string, der []byte) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
