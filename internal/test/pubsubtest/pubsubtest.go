// Package pubsubtest has an emulator of Google Cloud Pub/Sub in a process that a test kills. It is
// pstest of Google's client. It also writes each message to a file before it answers, and reads the
// file when it starts: a confirmed message survives, as in the service. Acknowledged messages come again.
package pubsubtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testserver"
)

// Variables of the environment that make a process the emulator.
const (
	addressVariable = "PENSTOCK_TEST_PUBSUB_ADDRESS"
	journalVariable = "PENSTOCK_TEST_PUBSUB_JOURNAL"
)

// Main is a package's TestMain: this program is also the emulator.
func Main(m *testing.M) {
	if address := os.Getenv(addressVariable); address != "" {
		fmt.Println(serve(address, os.Getenv(journalVariable)))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// journal has the requests that made topics, subscriptions and messages.
type journal struct {
	file *os.File
	lock chan struct{}
}

func serve(address, file string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fake := pstest.NewServer()
	j := &journal{lock: make(chan struct{}, 1)}
	if j.file, err = os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if err := j.replay(&fake.GServer); err != nil {
		return err
	}
	return newServer(fake, grpc.UnaryInterceptor(j.intercept)).Serve(listener)
}

func newServer(fake *pstest.Server, o ...grpc.ServerOption) *grpc.Server {
	server := grpc.NewServer(append(o, grpc.MaxRecvMsgSize(1<<30))...)
	pubsubpb.RegisterPublisherServer(server, &fake.GServer)
	pubsubpb.RegisterSubscriberServer(server, &fake.GServer)
	return server
}

// Serve starts the emulator in this process without a test and without a file.
func Serve() (address string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	fake := pstest.NewServer()
	server := newServer(fake)
	go func() { _ = server.Serve(listener) }() // until it is stopped
	return listener.Addr().String(), func() { server.Stop(); _ = fake.Close() }, nil
}

// intercept notes the changes of the request before the answer is sent. One request runs at a
// time, so that the file has the order of the emulator.
func (j *journal) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	switch r := request.(type) {
	case *pubsubpb.Topic, *pubsubpb.Subscription:
	case *pubsubpb.PublishRequest:
		if what := broken(r); what != "" {
			return nil, status.Error(codes.InvalidArgument, what)
		}
	default:
		return handler(ctx, request)
	}
	j.lock <- struct{}{}
	defer func() { <-j.lock }()
	answer, err := handler(ctx, request)
	if err != nil {
		return nil, err
	}
	note, err := anypb.New(request.(proto.Message))
	if err != nil {
		return nil, err
	}
	_, err = protodelim.MarshalTo(j.file, note)
	return answer, err
}

// replay makes everything again that the file has. A request that the process was killed in ends it.
func (j *journal) replay(fake *pstest.GServer) error {
	reader := bufio.NewReader(j.file)
	var whole int64
	for {
		note := &anypb.Any{}
		if (protodelim.UnmarshalOptions{MaxSize: -1}).UnmarshalFrom(reader, note) != nil {
			break
		}
		whole += int64(protowire.SizeBytes(proto.Size(note)))
		request, err := note.UnmarshalNew()
		switch r := request.(type) {
		case *pubsubpb.Topic:
			_, err = fake.CreateTopic(context.Background(), r)
		case *pubsubpb.Subscription:
			_, err = fake.CreateSubscription(context.Background(), r)
		case *pubsubpb.PublishRequest:
			_, err = fake.Publish(context.Background(), r)
		}
		if err != nil {
			return err
		}
	}
	if err := j.file.Truncate(whole); err != nil {
		return err
	}
	_, err := j.file.Seek(whole, io.SeekStart)
	return err
}

// broken names the documented rule that a request breaks and pstest does not check.
func broken(r *pubsubpb.PublishRequest) string {
	if len(r.Messages) > 1000 || proto.Size(r) > 10_000_000 {
		return fmt.Sprintf("%d messages, %d bytes", len(r.Messages), proto.Size(r))
	}
	for _, m := range r.Messages {
		if m.OrderingKey != r.Messages[0].OrderingKey {
			return "two ordering keys in a request"
		}
		if len(m.OrderingKey) > 1024 || len(m.Attributes) > 100 {
			return fmt.Sprintf("an ordering key of %d bytes, %d attributes", len(m.OrderingKey), len(m.Attributes))
		}
		for name, value := range m.Attributes {
			if name == "" || len(name) > 256 || len(value) > 1024 || strings.HasPrefix(name, "goog") {
				return fmt.Sprintf("attribute %.40q has %d bytes", name, len(value))
			}
		}
	}
	return ""
}

// Emulator is a running emulator, and its client.
type Emulator struct {
	*testserver.Program
	Address string

	topics        *pubsub.TopicAdminClient
	subscriptions *pubsub.SubscriptionAdminClient
}

// Project has the topics of tests.
const Project = "penstock-tests"

// Start starts an emulator. The package's TestMain must be Main.
func Start(tb testing.TB) *Emulator {
	tb.Helper()
	port, err := testserver.FreePort()
	suite.OK(tb, err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	file := filepath.Join(tb.TempDir(), "journal")
	program, err := os.Executable()
	suite.OK(tb, err)
	e := &Emulator{Address: address}
	e.Program, err = testserver.NewProgram("pubsub", func() *exec.Cmd {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), addressVariable+"="+address, journalVariable+"="+file)
		return cmd
	}, func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	suite.OK(tb, err)
	tb.Cleanup(func() { suite.OK(tb, e.Close()) })
	suite.OK(tb, e.Program.Start())
	plain := []option.ClientOption{option.WithEndpoint(address), option.WithoutAuthentication(), option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials()))}
	e.topics, err = pubsub.NewTopicAdminClient(context.Background(), plain...)
	suite.OK(tb, err)
	e.subscriptions, err = pubsub.NewSubscriptionAdminClient(context.Background(), plain...)
	suite.OK(tb, err)
	tb.Cleanup(func() { suite.OK(tb, errors.Join(e.topics.Close(), e.subscriptions.Close())) })
	return e
}

// Topic makes a topic and a subscription of that name, which keeps the order of keys.
func (e *Emulator) Topic(tb testing.TB, name string) {
	tb.Helper()
	full := "projects/" + Project + "/topics/" + name
	_, err := e.topics.CreateTopic(context.Background(), &pubsubpb.Topic{Name: full})
	suite.OK(tb, err)
	_, err = e.subscriptions.CreateSubscription(context.Background(), &pubsubpb.Subscription{Name: subscription(name), Topic: full, EnableMessageOrdering: true, AckDeadlineSeconds: 600})
	suite.OK(tb, err)
}

func subscription(name string) string { return "projects/" + Project + "/subscriptions/" + name }

// Drain takes n messages out of the topics' subscriptions, and those that are there beyond n.
func (e *Emulator) Drain(t *testing.T, n int, topics ...string) []sinktest.Received {
	t.Helper()
	return sinktest.Drain(n, topics, func(ctx context.Context, topic string) []sinktest.Received { return e.pull(ctx, t, topic) })
}

func (e *Emulator) pull(ctx context.Context, t *testing.T, topic string) (got []sinktest.Received) {
	t.Helper()
	//lint:ignore SA1019 without it the emulator waits half a second for a message
	answer, err := e.subscriptions.Pull(ctx, &pubsubpb.PullRequest{Subscription: subscription(topic), MaxMessages: 1000, ReturnImmediately: true})
	if err != nil {
		t.Error(err)
		return nil
	}
	ack := &pubsubpb.AcknowledgeRequest{Subscription: subscription(topic)}
	for _, m := range answer.ReceivedMessages {
		a := m.Message.Attributes
		r := sinktest.Received{ID: a["penstock-id"], Key: a["penstock-key"], Topic: a["penstock-topic"], Payload: m.Message.Data, Headers: a}
		if r.Key != m.Message.OrderingKey {
			t.Errorf("the ordering key of %q is %q", r.Key, m.Message.OrderingKey)
		}
		r.CreatedAt, err = time.Parse(time.RFC3339Nano, a["penstock-created-at"])
		suite.OK(t, err)
		got, ack.AckIds = append(got, r), append(ack.AckIds, m.AckId)
	}
	if len(ack.AckIds) > 0 {
		suite.OK(t, e.subscriptions.Acknowledge(ctx, ack))
	}
	return got
}
