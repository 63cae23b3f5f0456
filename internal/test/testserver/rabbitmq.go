package testserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// RabbitMQ is a private RabbitMQ node with a separate Erlang port mapper, or its cluster's. Its URL is that of the default virtual host.
type RabbitMQ struct {
	*server
	bin  string
	node string
	port int
	env  []string
}

// NewRabbitMQ starts a private node. conf are lines for rabbitmq.conf. A
// *MissingError if RabbitMQ is not installed.
func NewRabbitMQ(conf ...string) (*RabbitMQ, error) {
	nodes, err := newRabbitMQs(1, conf)
	if err != nil {
		return nil, err
	}
	return nodes[0], nil
}

// StartRabbitMQCluster starts n nodes for this test alone that are one cluster. The
// first has the port mapper of all.
func StartRabbitMQCluster(tb testing.TB, n int, conf ...string) []*RabbitMQ {
	tb.Helper()
	nodes, err := newRabbitMQs(n, conf)
	need(tb, err)
	for _, r := range nodes {
		forTest(tb, r, nil)
	}
	return nodes
}

func newRabbitMQs(n int, conf []string) (nodes []*RabbitMQ, err error) {
	bin, err := rabbitmqBin()
	if err != nil {
		return nil, err
	}
	epmd, err := exec.LookPath("epmd")
	if err != nil {
		return nil, fmt.Errorf("RabbitMQ is installed in %s, but Erlang's epmd is not on the PATH: %w", bin, err)
	}
	mapper, err := FreePort()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, r := range nodes {
				r.Close()
			}
			nodes = nil
		}
	}()
	cluster := rand.Uint32()
	if n > 1 {
		conf = append([]string{"cluster_formation.peer_discovery_backend = classic_config"}, conf...)
	}
	for i := range n {
		s, port, _, err := prepare("rabbitmq", "", syscall.SIGTERM, syscall.SIGKILL)
		if err != nil {
			return nodes, err
		}
		r := &RabbitMQ{server: s, bin: bin, port: port, node: fmt.Sprintf("penstock-%08x-%d@localhost", cluster, i)}
		r.URL = fmt.Sprintf("amqp://guest:guest@%s/", loopback(r.port))
		r.ready = r.greet
		r.command = func() *exec.Cmd { return r.run("rabbitmq-server") }
		nodes = append(nodes, r)
		if n > 1 {
			conf = append(conf, fmt.Sprintf("cluster_formation.classic_config.nodes.%d = %s", i+1, r.node))
		}
	}
	for i, r := range nodes {
		if err := r.configure(mapper, cluster, conf); err != nil {
			return nodes, err
		}
		if i > 0 {
			continue
		}
		// In the foreground and started here: the node would start one that goes into the background,
		// where no process ends it.
		daemon := exec.Command(epmd, "-address", "127.0.0.1", "-port", fmt.Sprint(mapper))
		daemon.Dir, daemon.Env = r.dir, r.env
		if err := r.helper(daemon); err != nil {
			return nodes, err
		}
	}
	// The first makes the cluster, which the others join together.
	if err := nodes[0].Start(); err != nil {
		return nodes, err
	}
	var starting sync.WaitGroup
	errs := make([]error, n)
	for i, r := range nodes[1:] {
		starting.Go(func() { errs[i] = r.Start() })
	}
	starting.Wait()
	return nodes, errors.Join(errs...)
}

// Kill ends the node as a crash would, once the definitions of queues,
// exchanges and bindings are on disk. RabbitMQ confirms a declaration up to two seconds before
// that. A crash in between loses a durable queue with all messages confirmed into it, and a test
// that has just declared its queue would meet nothing else.
func (r *RabbitMQ) Kill() error {
	if r.running() {
		if _, err := r.Ctl("eval", "disk_log:sync(latest_log)."); err != nil {
			return err
		}
	}
	return r.server.Kill()
}

// Ctl runs rabbitmqctl against the node and returns its output.
func (r *RabbitMQ) Ctl(args ...string) (string, error) {
	out, err := r.run("rabbitmqctl", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("rabbitmqctl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

func (r *RabbitMQ) run(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(r.bin, program), args...)
	cmd.Dir, cmd.Env = r.dir, r.env
	return cmd
}

func (r *RabbitMQ) configure(mapper int, cluster uint32, conf []string) error {
	dist, err := FreePort()
	if err != nil {
		return err
	}
	at := func(name string) string { return filepath.Join(r.dir, name) }
	r.env = baseEnv(
		"HOME="+r.dir, // holds the Erlang cookie
		"ERL_EPMD_ADDRESS=127.0.0.1",
		fmt.Sprintf("ERL_EPMD_PORT=%d", mapper),
		"RABBITMQ_NODENAME="+r.node,
		fmt.Sprintf("RABBITMQ_DIST_PORT=%d", dist),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_CONF_ENV_FILE="+at("rabbitmq-env.conf"), // absent; hides the one in /etc
		"RABBITMQ_CONFIG_FILE="+at("rabbitmq.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE="+at("advanced.config"), // absent, likewise
		"RABBITMQ_ENABLED_PLUGINS_FILE="+at("enabled_plugins"),
		"RABBITMQ_MNESIA_BASE="+at("mnesia"),
		"RABBITMQ_LOG_BASE="+at("log"),
		"RABBITMQ_PID_FILE="+at("pid"),
	)
	lines := append([]string{
		"listeners.tcp.1 = " + loopback(r.port),
		"log.console = true",
		"log.file = false",
	}, conf...)
	return errors.Join(
		os.WriteFile(at("rabbitmq.conf"), []byte(strings.Join(lines, "\n")+"\n"), 0o600),
		os.WriteFile(at("enabled_plugins"), []byte("[].\n"), 0o600),
		os.WriteFile(at(".erlang.cookie"), fmt.Appendf(nil, "PENSTOCK%08X", cluster), 0o400),
	)
}

// greet speaks the first words of AMQP: a node that answers them with a method
// frame (Connection.Start) has booted and takes connections.
func (r *RabbitMQ) greet(ctx context.Context) error {
	var frame [1]byte
	if err := exchange(ctx, r.port, []byte("AMQP\x00\x00\x09\x01"), frame[:]); err != nil {
		return err
	}
	if frame[0] != 1 {
		return fmt.Errorf("%s does not answer in AMQP 0-9-1", loopback(r.port))
	}
	return nil
}

// rabbitmqBin finds the programs themselves: what distributions put on the
// PATH is a wrapper that changes the user and reads /etc.
func rabbitmqBin() (string, error) {
	if dir, err := named(envRabbitMQBin, "rabbitmq-server"); dir != "" || err != nil {
		return dir, err
	}
	for _, pattern := range []string{
		"/usr/lib/rabbitmq/bin",
		"/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin",
		"/opt/homebrew/opt/rabbitmq/sbin",
	} {
		dirs, _ := filepath.Glob(pattern) // fails only for a bad pattern
		for _, dir := range dirs {
			if hasProgram(dir, "rabbitmq-server") {
				return dir, nil
			}
		}
	}
	return "", &MissingError{Server: "RabbitMQ", Package: "rabbitmq-server", URLVar: EnvRabbitMQ, BinVar: envRabbitMQBin}
}
