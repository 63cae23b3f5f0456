package testserver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Kafka is a private Apache Kafka broker that is also a controller: its own, or its cluster's. Its URL is that of the listener that asks
// for no user.
type Kafka struct {
	*server
	jars       string
	java       string
	node       int
	port       int
	controller int // port
	properties string
	jvm        []string
}

// KafkaOptions are a test's wishes for a broker.
type KafkaOptions struct {
	// Listeners besides the one of URL.
	Listeners []KafkaListener
	// Scram are users as kafka-storage's --add-scram takes them:
	// SCRAM-SHA-512=[name=me,password=secret].
	Scram []string
	// Properties are lines of server.properties; they win over the usual ones.
	Properties []string
	// JVM are arguments of Java.
	JVM []string
}

// KafkaListener is a port of the broker with a separate protocol.
type KafkaListener struct {
	Name     string // in capitals
	Protocol string // PLAINTEXT, SASL_PLAINTEXT, SSL or SASL_SSL
	Port     int
	// Advertised is the address that clients get, such as a proxy's.
	Advertised string
}

// HasKafka reports whether there is a broker to start: only where
// `make test-kafka` has said where its jars are.
func HasKafka() bool { return os.Getenv(envKafkaJars) != "" }

// StartKafka starts a broker for this test alone, which the test may stop, kill
// and start again. It is removed when the test ends.
func StartKafka(tb testing.TB, o KafkaOptions) *Kafka {
	tb.Helper()
	k, err := NewKafka(o)
	return forTest(tb, k, err)
}

// NewKafka starts a private broker. It needs Java and the folder of jars that
// script/kafka-jars.sh makes.
func NewKafka(o KafkaOptions) (*Kafka, error) {
	brokers, err := newKafkas(1, o)
	if err != nil {
		return nil, err
	}
	return brokers[0], nil
}

// StartKafkaCluster starts n brokers for this test alone, of which each keeps a copy of
// every partition and most must be there for a write. Their URLs, joined, are the
// cluster's.
func StartKafkaCluster(tb testing.TB, n int) []*Kafka {
	tb.Helper()
	brokers, err := newKafkas(n, KafkaOptions{Properties: []string{
		fmt.Sprintf("default.replication.factor=%d", n),
		fmt.Sprintf("min.insync.replicas=%d", n/2+1),
		fmt.Sprintf("offsets.topic.replication.factor=%d", n),
	}})
	if err != nil {
		tb.Fatal(err)
	}
	for _, k := range brokers {
		forTest(tb, k, nil)
	}
	return brokers
}

// newKafkas starts brokers that are one cluster's.
func newKafkas(n int, o KafkaOptions) (brokers []*Kafka, err error) {
	jars := os.Getenv(envKafkaJars)
	if jars == "" {
		return nil, fmt.Errorf("no Kafka broker: set %s to what script/kafka-jars.sh prints, or run `make test-kafka`", envKafkaJars)
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("Kafka runs on Java: %w", err)
	}
	defer func() {
		if err != nil {
			for _, k := range brokers {
				k.Close()
			}
			brokers = nil
		}
	}()
	var voters []string
	for i := range n {
		s, port, _, err := prepare("kafka", "", syscall.SIGTERM, syscall.SIGKILL)
		if err != nil {
			return brokers, err
		}
		k := &Kafka{server: s, jars: jars, java: java, node: i + 1, port: port, jvm: o.JVM}
		brokers = append(brokers, k)
		if k.controller, err = FreePort(); err != nil {
			return brokers, err
		}
		k.URL = "kafka://" + loopback(k.port)
		k.ready = k.greet
		k.command = func() *exec.Cmd { return k.run("kafka.Kafka", k.properties) }
		voters = append(voters, fmt.Sprintf("%d@%s", k.node, loopback(k.controller)))
	}
	// Together: one answers when most of them have agreed on who leads.
	var starting sync.WaitGroup
	errs := make([]error, n)
	for i, k := range brokers {
		starting.Go(func() {
			if errs[i] = errors.Join(k.configure(voters, o), k.format(o.Scram)); errs[i] == nil {
				errs[i] = k.Start()
			}
		})
	}
	starting.Wait()
	return brokers, errors.Join(errs...)
}

func (k *Kafka) configure(voters []string, o KafkaOptions) error {
	k.properties = filepath.Join(k.dir, "server.properties")
	var (
		listen     = []string{"PLAINTEXT://" + loopback(k.port), "CONTROLLER://" + loopback(k.controller)}
		advertised = []string{"PLAINTEXT://" + loopback(k.port)}
		protocols  = []string{"PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"}
	)
	for _, l := range o.Listeners {
		listen = append(listen, l.Name+"://"+loopback(l.Port))
		advertised = append(advertised, l.Name+"://"+l.Advertised)
		protocols = append(protocols, l.Name+":"+l.Protocol)
	}
	lines := append([]string{
		"process.roles=broker,controller",
		fmt.Sprintf("node.id=%d", k.node),
		"controller.quorum.voters=" + strings.Join(voters, ","),
		"controller.listener.names=CONTROLLER",
		"inter.broker.listener.name=PLAINTEXT",
		"listeners=" + strings.Join(listen, ","),
		"advertised.listeners=" + strings.Join(advertised, ","),
		"listener.security.protocol.map=" + strings.Join(protocols, ","),
		"log.dirs=" + filepath.Join(k.dir, "data"),
		"auto.create.topics.enable=false",
		"offsets.topic.replication.factor=1",
		"transaction.state.log.replication.factor=1",
		"transaction.state.log.min.isr=1",
		"share.coordinator.state.topic.replication.factor=1",
		"share.coordinator.state.topic.min.isr=1",
		"broker.session.timeout.ms=3000", // how long a broker that was killed is in its own way
	}, o.Properties...)
	return os.WriteFile(k.properties, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// format makes the empty log of the cluster's metadata.
func (k *Kafka) format(scram []string) error {
	args := []string{"format", "--cluster-id", "cGVuc3RvY2sta2Fma2EtMQ", "--config", k.properties}
	for _, s := range scram {
		args = append(args, "--add-scram", s)
	}
	if out, err := k.run("kafka.tools.StorageTool", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("format the broker's storage: %w\n%s", err, out)
	}
	return nil
}

func (k *Kafka) run(class string, args ...string) *exec.Cmd {
	return k.as(nil, k.java, slices.Concat(k.jvm, []string{
		"-Xms128m", "-Xmx512m", "-Djava.awt.headless=true", "-Dorg.apache.logging.log4j.level=INFO",
		"-Djava.io.tmpdir=" + k.dir, "-cp", filepath.Join(k.jars, "*"), class,
	}, args)...)
}

// Version is that of the jars.
func (k *Kafka) Version() string {
	found, _ := filepath.Glob(filepath.Join(k.jars, "kafka-clients-*.jar")) // fails only for a bad pattern
	if len(found) != 1 {
		return "unknown"
	}
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), "kafka-clients-"), ".jar")
}

// greet asks which requests the broker knows: one that answers takes messages.
func (k *Kafka) greet(ctx context.Context) error {
	// Length, ApiVersions (18) of version 0, correlation id 7, no client id.
	request := []byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff}
	var head [10]byte // length, correlation id, error code
	if err := exchange(ctx, k.port, request, head[:]); err != nil {
		return err
	}
	if id, code := binary.BigEndian.Uint32(head[4:]), binary.BigEndian.Uint16(head[8:]); id != 7 || code != 0 {
		return fmt.Errorf("%s does not answer as Kafka does", loopback(k.port))
	}
	return nil
}
