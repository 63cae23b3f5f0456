// Package awstest has emulators of Amazon SQS, SNS and S3 for tests: one in this process, which follows
// the documentation of the services, moto and ElasticMQ, which others have written.
package awstest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/penstock/penstock/internal/amazon"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testserver"
)

// Credentials of tests. The emulator in this process refuses those that are denied, and quotes the token.
const (
	Region     = "eu-west-1"
	Account    = "123456789012"
	KeyID      = "AKIAIOSFODNN7EXAMPLE"
	DeniedID   = "AKIADENIED7EXAMPLE00"
	SecretKey  = "hush-hush-4711-secret-key"
	DeniedKey  = "wrong-4712-secret-key"
	Token      = "t0ken-of-a-session-4713"
	MotoServer = "PENSTOCK_TEST_MOTO"      // names the program moto_server
	ElasticMQ  = "PENSTOCK_TEST_ELASTICMQ" // names the folder of its jars
)

// Emulator is the service that a test sends to.
type Emulator struct {
	*inProcess
	Fake *Fake // nil if it is another program

	sqs *sqs.Client
	sns *sns.Client
}

// StartFake starts the emulator in this process.
func StartFake(tb testing.TB) *Emulator {
	f := newFake()
	p := startInProcess(tb, f)
	e := newEmulator(p.Address, f)
	e.inProcess = p
	return e
}

// Serve starts the emulator of this process without a test.
func Serve() (address string, stop func()) {
	server := httptest.NewServer(newFake())
	return strings.TrimPrefix(server.URL, "http://"), server.Close
}

// inProcess is an emulator of this process.
type inProcess struct {
	Address string
	server  *httptest.Server
}

func startInProcess(tb testing.TB, h http.Handler) *inProcess {
	p := &inProcess{server: httptest.NewServer(h)}
	p.Address = strings.TrimPrefix(p.server.URL, "http://")
	tb.Cleanup(p.kill)
	return p
}

// kill ends the server in the middle of its requests.
func (p *inProcess) kill() {
	p.server.CloseClientConnections() // a stalled one would be waited for
	p.server.Close()
}

// Restart kills the emulator, and starts another that has its messages or objects, as the service would.
func (p *inProcess) Restart(tb testing.TB) {
	tb.Helper()
	p.kill()
	listener, err := net.Listen("tcp", p.Address)
	suite.OK(tb, err)
	p.server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: p.server.Config.Handler}}
	p.server.Start()
}

// StartElasticMQ starts ElasticMQ, which has SQS only, or skips the test if PENSTOCK_TEST_ELASTICMQ does not name the folder of its jars.
func StartElasticMQ(tb testing.TB) *Emulator {
	jars := os.Getenv(ElasticMQ)
	if jars == "" {
		tb.Skip("needs ElasticMQ: make test-sinks")
	}
	return startProgram(tb, "elasticmq", "/health", func(port int) *exec.Cmd {
		return exec.Command("java", "-Drest-sqs.bind-hostname=127.0.0.1", fmt.Sprintf("-Drest-sqs.bind-port=%d", port), fmt.Sprintf("-Dnode-address.port=%d", port),
			"-Drest-stats.enabled=false", "-Daws.region="+Region, "-Daws.accountId="+Account, "-cp", jars+"/*", "org.elasticmq.server.Main")
	})
}

// StartMoto starts moto's server, or skips the test if PENSTOCK_TEST_MOTO does not name it.
func StartMoto(tb testing.TB) *Emulator {
	program := os.Getenv(MotoServer)
	if program == "" {
		tb.Skip("needs moto: make test-sinks")
	}
	return startProgram(tb, "moto", "/moto-api/data.json", func(port int) *exec.Cmd {
		return exec.Command(program, "-H", "127.0.0.1", "-p", fmt.Sprint(port))
	})
}

// startProgram starts an emulator that answers HTTP at path once it runs.
func startProgram(tb testing.TB, name, path string, command func(port int) *exec.Cmd) *Emulator {
	port, err := testserver.FreePort()
	suite.OK(tb, err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	p, err := testserver.NewProgram(name, func() *exec.Cmd { return command(port) }, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	})
	suite.OK(tb, err)
	tb.Cleanup(func() { suite.OK(tb, p.Close()) })
	suite.OK(tb, p.Start())
	return newEmulator(address, nil)
}

func newEmulator(address string, f *Fake) *Emulator {
	cfg := aws.Config{Region: Region, BaseEndpoint: aws.String("http://" + address), Credentials: credentials.NewStaticCredentialsProvider(KeyID, SecretKey, "")}
	return &Emulator{inProcess: &inProcess{Address: address}, Fake: f, sqs: sqs.NewFromConfig(cfg), sns: sns.NewFromConfig(cfg)}
}

// Login sets the environment from which a sink takes its credentials.
func Login(t *testing.T, id, key, token string) {
	t.Setenv("AWS_ACCESS_KEY_ID", id)
	t.Setenv("AWS_SECRET_ACCESS_KEY", key)
	t.Setenv("AWS_SESSION_TOKEN", token)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", "/does/not/exist")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/does/not/exist")
}

func fifo(name string) map[string]string {
	if strings.HasSuffix(name, ".fifo") {
		return map[string]string{"FifoQueue": "true"}
	}
	return nil
}

// Queue makes a queue and returns its URL.
func (e *Emulator) Queue(tb testing.TB, name string) string {
	tb.Helper()
	q, err := e.sqs.CreateQueue(context.Background(), &sqs.CreateQueueInput{QueueName: &name, Attributes: fifo(name)})
	suite.OK(tb, err)
	return *q.QueueUrl
}

// Topic makes a topic, and a queue that gets its messages as they are. It returns the topic's ARN and the queue's URL.
func (e *Emulator) Topic(tb testing.TB, name string) (arn, queue string) {
	tb.Helper()
	attributes := fifo(name)
	if attributes != nil {
		attributes = map[string]string{"FifoTopic": "true"}
	}
	topic, err := e.sns.CreateTopic(context.Background(), &sns.CreateTopicInput{Name: &name, Attributes: attributes})
	suite.OK(tb, err)
	queue = e.Queue(tb, name)
	a, err := e.sqs.GetQueueAttributes(context.Background(), &sqs.GetQueueAttributesInput{QueueUrl: &queue, AttributeNames: []types.QueueAttributeName{"QueueArn"}})
	suite.OK(tb, err)
	_, err = e.sns.Subscribe(context.Background(), &sns.SubscribeInput{
		TopicArn: topic.TopicArn, Protocol: aws.String("sqs"), Endpoint: aws.String(a.Attributes["QueueArn"]), Attributes: map[string]string{"RawMessageDelivery": "true"},
	})
	suite.OK(tb, err)
	return *topic.TopicArn, queue
}

// Drain takes n messages out of the queues, and those that are there beyond n.
func (e *Emulator) Drain(t *testing.T, n int, queues ...string) []sinktest.Received {
	t.Helper()
	return sinktest.Drain(n, queues, func(ctx context.Context, queue string) []sinktest.Received { return e.receive(ctx, t, queue) })
}

func (e *Emulator) receive(ctx context.Context, t *testing.T, queue string) (got []sinktest.Received) {
	t.Helper()
	answer, err := e.sqs.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &queue, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"}})
	if err != nil {
		t.Error(err)
		return nil
	}
	var done []types.DeleteMessageBatchRequestEntry
	for i, m := range answer.Messages {
		attributes := map[string]string{}
		for name, a := range m.MessageAttributes {
			attributes[name] = aws.ToString(a.StringValue)
		}
		if len(attributes) > 10 {
			t.Errorf("a message has %d attributes", len(attributes))
		}
		r, err := amazon.Read(aws.ToString(m.Body), attributes)
		if err != nil {
			t.Errorf("%v: %.200s", err, aws.ToString(m.Body))
		}
		got = append(got, sinktest.Received{ID: r.ID, Key: r.Key, Topic: r.Topic, Payload: r.Payload, Headers: r.Headers, CreatedAt: r.CreatedAt})
		done = append(done, types.DeleteMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), ReceiptHandle: m.ReceiptHandle})
	}
	if len(done) > 0 {
		_, err = e.sqs.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &queue, Entries: done})
		suite.OK(t, err)
	}
	return got
}
