package kafka_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock/sink/kafka"
)

// certificates are made for one test: an authority, a server by the name of
// kafka.example and a client, for the sink and for a reader.
type certificates struct {
	server, reader *tls.Config
	client         kafka.TLSConfig
}

func makeCertificates(tb testing.TB) certificates {
	tb.Helper()
	dir := tb.TempDir()
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(tb, err)
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, authority, authority, &authorityKey.PublicKey, authorityKey)
	check(tb, err)
	authority, err = x509.ParseCertificate(der)
	check(tb, err)
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		check(tb, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return file
	}
	c := certificates{client: kafka.TLSConfig{CAFile: write("ca.pem", "CERTIFICATE", der), ServerName: "kafka.example"}}

	issue := func(name string, serial int64, use x509.ExtKeyUsage, names ...string) (certFile, keyFile string) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		check(tb, err)
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
			DNSNames: names, ExtKeyUsage: []x509.ExtKeyUsage{use},
		}, authority, &key.PublicKey, authorityKey)
		check(tb, err)
		private, err := x509.MarshalECPrivateKey(key)
		check(tb, err)
		return write(name+".pem", "CERTIFICATE", der), write(name+".key", "EC PRIVATE KEY", private)
	}
	serverPair, err := tls.LoadX509KeyPair(issue("server", 2, x509.ExtKeyUsageServerAuth, c.client.ServerName))
	check(tb, err)
	c.client.CertFile, c.client.KeyFile = issue("client", 3, x509.ExtKeyUsageClientAuth)
	clientPair, err := tls.LoadX509KeyPair(c.client.CertFile, c.client.KeyFile)
	check(tb, err)
	pool := x509.NewCertPool()
	pool.AddCert(authority)
	c.server = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{serverPair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	c.reader = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{clientPair}, RootCAs: pool, ServerName: c.client.ServerName}
	return c
}
