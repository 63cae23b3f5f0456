package tlsconfig_test

import (
	"crypto/tls"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/test/testcerts"
	"github.com/penstock/penstock/internal/tlsconfig"
)

// A client with a ca_file trusts no other authority, not even the system's. The system's are those
// of SSL_CERT_FILE, which is read once per process: the test runs itself again in a separate
// process.
func TestAuthoritiesInsteadOfTheSystems(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SSL_CERT_FILE says which the system's authorities are on Linux")
	}
	const inside = "PENSTOCK_TEST_SYSTEM_AUTHORITIES"
	if os.Getenv(inside) == "" {
		test, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		again := exec.CommandContext(t.Context(), test, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=1m")
		again.Env = append(os.Environ(), inside+"=yes", "SSL_CERT_DIR="+t.TempDir(), "SSL_CERT_FILE="+filepath.Join(t.TempDir(), "system.pem"))
		out, err := again.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	system, named := testcerts.New(t), testcerts.New(t)
	if err := os.Rename(system.CAFile, os.Getenv("SSL_CERT_FILE")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		caFile string
		server *testcerts.Authority
		works  bool
	}{
		{"no ca_file, a server that the system trusts", "", system, true},
		{"no ca_file, another server", "", named, false},
		{"ca_file, its server", named.CAFile, named, true},
		{"ca_file, a server that the system trusts", named.CAFile, system, false},
	} {
		cfg := tlsconfig.Client{CAFile: c.caFile, ServerName: "mq.example"}
		config, err := cfg.Load()
		if err != nil {
			t.Fatal(err)
		}
		server := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{c.server.Server(t, "mq.example").Certificate}}
		if err := handshake(t, server, config); (err == nil) != c.works || err != nil && !strings.Contains(err.Error(), "unknown authority") {
			t.Errorf("%s: got error %v, want one: %t", c.name, err, !c.works)
		}
	}
}
