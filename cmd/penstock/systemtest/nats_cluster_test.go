package systemtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock/penstock/internal/test/testserver"
)

// natsNodeCommand is the argument that makes this program one server of a cluster: a separate
// process that a test may kill.
const natsNodeCommand = "nats-node"

// serveNATSNode runs the server. Its arguments are its number, its port, and the cluster ports of
// all servers. It returns if the server does not start.
func serveNATSNode(args []string) error {
	var number, port int
	if _, err := fmt.Sscan(args[0], &number); err != nil {
		return err
	}
	if _, err := fmt.Sscan(args[1], &port); err != nil {
		return err
	}
	options := &server.Options{ServerName: fmt.Sprint("node-", number), Host: "127.0.0.1", Port: port,
		JetStream: true, StoreDir: "streams", NoSigs: true, LogFile: "server.log"}
	options.Cluster.Name, options.Cluster.Host = "penstock", "127.0.0.1"
	for i, other := range args[2:] {
		if i == number {
			if _, err := fmt.Sscan(other, &options.Cluster.Port); err != nil {
				return err
			}
			continue
		}
		options.Routes = append(options.Routes, &url.URL{Scheme: "nats", Host: "127.0.0.1:" + other})
	}
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		return errors.New("the server is not ready")
	}
	select {}
}

// natsCluster is three servers with one replicated stream.
type natsCluster struct {
	*natsStream
	nodes []*testserver.Program
}

func startNATSCluster(t testing.TB) *natsCluster {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const nodes = 3
	ports := make([]int, 2*nodes)
	for i := range ports {
		if ports[i], err = testserver.FreePort(); err != nil {
			t.Fatal(err)
		}
	}
	c := &natsCluster{natsStream: &natsStream{name: "orders"}}
	var urls, cluster []string
	for i := range nodes {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", ports[i]))
		cluster = append(cluster, fmt.Sprint(ports[nodes+i]))
	}
	c.url = strings.Join(urls, ",")
	for i := range nodes {
		args := append([]string{natsNodeCommand, fmt.Sprint(i), fmt.Sprint(ports[i])}, cluster...)
		node, err := testserver.NewProgram(fmt.Sprint("nats-", i), func() *exec.Cmd { return exec.Command(self, args...) },
			func(context.Context) error {
				conn, err := nats.Connect(urls[i], nats.Timeout(time.Second))
				if err == nil {
					conn.Close()
				}
				return err
			})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = node.Close() })
		c.nodes = append(c.nodes, node)
		if err := node.Start(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the cluster makes a stream", func() bool {
		return c.try(t, func(ctx context.Context, js jetstream.JetStream) error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: c.name, Subjects: []string{"orders"}, Replicas: nodes, Duplicates: time.Hour})
			return err
		}) == nil
	})
	return c
}

// leader is the number of the server that leads the stream, and how many others follow it; -1
// while there is none.
func (c *natsCluster) leader(t testing.TB) (number, following int) {
	t.Helper()
	number = -1
	_ = c.try(t, func(ctx context.Context, js jetstream.JetStream) error { // asked again
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		stream, err := js.Stream(ctx, c.name)
		if err != nil {
			return err
		}
		info := stream.CachedInfo().Cluster
		if info == nil || info.Leader == "" {
			return errors.New("no leader")
		}
		if _, err := fmt.Sscanf(info.Leader, "node-%d", &number); err != nil {
			return err
		}
		for _, r := range info.Replicas {
			if r.Current && !r.Offline {
				following++
			}
		}
		return nil
	})
	return number, following
}
