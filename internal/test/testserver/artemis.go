package testserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Artemis is a private Apache ActiveMQ Artemis.
type Artemis struct {
	*server
	// Address of the server; the same after every Start.
	Address string
}

// StartArtemis starts a broker for this test alone, with a user and queues; it makes no others, unless there are
// none. It needs Java, and is skipped unless PENSTOCK_TEST_ARTEMIS has what script/artemis.sh prints.
func StartArtemis(tb testing.TB, user, password string, queues ...string) *Artemis {
	tb.Helper()
	if os.Getenv(envArtemis) == "" {
		tb.Skip("needs Artemis: make test-sinks")
	}
	a, err := NewArtemis(user, password, queues)
	return forTest(tb, a, err)
}

// NewArtemis starts a broker, which the caller closes. Without queues it makes those that clients name.
func NewArtemis(user, password string, queues []string) (*Artemis, error) {
	s, port, _, err := prepare("artemis", "", syscall.SIGTERM, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	s.URL = fmt.Sprintf("amqp1://%s:%s@%s", user, password, loopback(port))
	a := &Artemis{server: s, Address: loopback(port)}
	instance := filepath.Join(a.dir, "instance")
	a.command = func() *exec.Cmd { return a.run(filepath.Join(instance, "bin", "artemis"), "run") }
	a.ready = func(ctx context.Context) error {
		// The header of AMQP 1.0 with SASL, which the broker repeats.
		header := []byte("AMQP\x03\x01\x00\x00")
		return exchange(ctx, port, header, make([]byte, len(header)))
	}
	return a, a.begin(a.create(instance, port, user, password, queues))
}

func (a *Artemis) run(program string, args ...string) *exec.Cmd { return a.as(nil, program, args...) }

// create makes the broker's folder.
func (a *Artemis) create(instance string, port int, user, password string, queues []string) error {
	args := []string{"create", instance, "--silent", "--user", user, "--password", password, "--require-login",
		"--no-web", "--no-autotune", "--nio", "--host", "127.0.0.1", "--default-port", fmt.Sprint(port), "--no-hornetq-acceptor", "--no-mqtt-acceptor", "--no-stomp-acceptor", "--no-amqp-acceptor"}
	if len(queues) > 0 {
		args = append(args, "--queues", strings.Join(queues, ","))
	}
	out, err := a.run(filepath.Join(os.Getenv(envArtemis), "bin", "artemis"), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("make a broker: %w\n%s", err, out)
	}
	if len(queues) == 0 {
		return nil
	}
	file := filepath.Join(instance, "etc", "broker.xml")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed := strings.NewReplacer(
		"<auto-create-addresses>true", "<auto-create-addresses>false", "<auto-create-queues>true", "<auto-create-queues>false",
		"<auto-delete-addresses>true", "<auto-delete-addresses>false", "<auto-delete-queues>true", "<auto-delete-queues>false",
	).Replace(string(text))
	return os.WriteFile(file, []byte(changed), 0o600)
}
