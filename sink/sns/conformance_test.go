package sns_test

import (
	"crypto/rand"
	"log/slog"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/awstest"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/sink/sns"
)

var topics = []string{"orders.placed", "orders.cancelled"}

// That messages survive a restart is the promise of the service. The emulator keeps them in this process.
func TestConformance(t *testing.T) {
	conformance(t, awstest.StartFake(t), "", append([]string{"unroutable is a failure", "order per key", "concurrent Sends, for which Close waits"}, sinktest.Transport...)) // sink/sqs runs the rest
}

func TestConformanceFIFO(t *testing.T) {
	conformance(t, awstest.StartFake(t), ".fifo", []string{"everything arrives", "a second delivery is accepted", "order per key", "killed again and again"})
}

// What moto thinks of the messages and of what it refuses. It is slow, so the large cases are left out.
var content = []string{
	"everything arrives", "awkward characters", "bytes survive", "a second delivery is accepted", "a bad message fails alone", "only bad messages",
	"unroutable is a failure", "an outage is Unavailable and heals", "opened while the broker is down",
}

func TestMoto(t *testing.T)     { conformance(t, awstest.StartMoto(t), "", content) }
func TestMotoFIFO(t *testing.T) { conformance(t, awstest.StartMoto(t), ".fifo", content) }

func conformance(t *testing.T, e *awstest.Emulator, ending string, only []string) {
	concurrency := 0
	if e.Fake == nil {
		concurrency = 1 // moto loses messages of requests that it gets at once
	}
	sinktest.Run(t, sinktest.Harness{
		Features: sinktest.Features{ReadBack: true, Network: true, Durable: e.Fake != nil, Routes: true, Refuses: true, Secrets: e.Fake != nil, Deduplicates: ending != ""},
		Only:     only,
		New: func(t *testing.T) *sinktest.Destination {
			room := rand.Text()[:8]
			var queues []string
			for _, name := range []string{"-orders-placed", "-orders-cancelled"} {
				_, queue := e.Topic(t, room+name+ending)
				queues = append(queues, queue)
			}
			proxy := tcpproxy.New(t, e.Address)
			as := func(id, key string) func(*testing.T, *slog.Logger) driver.Sink {
				return func(t *testing.T, log *slog.Logger) driver.Sink {
					awstest.Login(t, id, key, awstest.Token)
					s, err := sns.Open(sns.Config{TopicARN: "arn:aws:sns:" + awstest.Region + ":" + awstest.Account + ":" + room + "-{topic}" + ending, Settings: sns.Settings{Endpoint: "http://" + proxy.Addr(), AllowPrivate: true, Timeout: time.Minute, Concurrency: concurrency}}, log)
					check(t, err)
					return s
				}
			}
			return &sinktest.Destination{
				Topics:       topics,
				LargePayload: 180 << 10,
				Open:         as(awstest.KeyID, awstest.SecretKey),
				Drain:        func(t *testing.T, n int) []sinktest.Received { return e.Drain(t, n, queues...) },
				Down:         proxy.Refuse, Up: proxy.Resume,
				Restart:    func(t *testing.T) { e.Restart(t) },
				Stall:      func() { proxy.Stall(tcpproxy.Both) },
				Unroutable: &penstock.Message{ID: "lost", Topic: "invoices.sent", Payload: []byte("x")},
				Bad: []sinktest.Bad{
					{Name: "a byte too much", Message: penstock.Message{ID: "bad", Topic: topics[0], Payload: make([]byte, 256<<10+1)}},
				},
				Secrets:    []string{awstest.SecretKey, awstest.DeniedKey, awstest.Token},
				OpenDenied: as(awstest.DeniedID, awstest.DeniedKey),
			}
		},
	})
}

// The consumer of the demo and the benchmark, which reads through a queue of SQS.
func TestReadBack(t *testing.T)     { readBack(t, awstest.StartFake(t)) }
func TestMotoReadBack(t *testing.T) { readBack(t, awstest.StartMoto(t)) }

func readBack(t *testing.T, e *awstest.Emulator) {
	awstest.Login(t, awstest.KeyID, awstest.SecretKey, "")
	sinktest.ReadBack(t, sns.Driver, "sns://arn:aws:sns:"+awstest.Region+":"+awstest.Account+":x?concurrency=1&allow_private=true&endpoint=http://"+e.Address)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
