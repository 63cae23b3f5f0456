package s3_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/awstest"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/sink/claimcheck"
	"github.com/penstock/penstock/sink/claimcheck/s3"
	"github.com/penstock/penstock/sink/sqs"
)

const bucket = "payloads"

// The suite of the sinks. The queue is always there, and the network and the restarts are those of the object store.
func TestConformance(t *testing.T) {
	objects := awstest.StartS3(t, bucket)
	conformance(t, objects.Address, objects, nil)
}

// The requests at moto.
func TestMoto(t *testing.T) {
	moto := awstest.StartMoto(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+moto.Address+"/"+bucket, nil)
	check(t, err)
	answer, err := http.DefaultClient.Do(r)
	check(t, err)
	check(t, answer.Body.Close())
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("moto makes no bucket: %s", answer.Status)
	}
	conformance(t, moto.Address, nil, []string{"everything arrives", "awkward characters", "bytes survive", "a second delivery is accepted", "an outage is Unavailable and heals", "opened while the broker is down"})
	awstest.Login(t, awstest.KeyID, awstest.SecretKey, "")
	store := open(t, claimcheck.Config{Bucket: bucket, Endpoint: "http://" + moto.Address})
	if warning, err := store.Reach(t.Context()); err != nil || !strings.Contains(warning, "no lifecycle rule") {
		t.Errorf("%q, %v", warning, err)
	}
	if _, err := store.Get(t.Context(), strings.Repeat("a", 64)); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	lost := open(t, claimcheck.Config{Bucket: "no-such-bucket", Endpoint: "http://" + moto.Address})
	if _, err := lost.Put(t.Context(), claimcheck.Object{Name: "a"}); !penstock.IsUnavailable(err) || !strings.Contains(err.Error(), "create the bucket no-such-bucket") {
		t.Error(err)
	}
}

func conformance(t *testing.T, address string, emulator *awstest.S3, only []string) {
	queues := awstest.StartFake(t)
	sinktest.Run(t, sinktest.Harness{
		Features: sinktest.Features{ReadBack: true, Network: true, Durable: emulator != nil, Routes: true, Secrets: emulator != nil},
		Only:     only,
		New: func(t *testing.T) *sinktest.Destination {
			room := rand.Text()[:8]
			names := []string{queues.Queue(t, room+"-orders-placed"), queues.Queue(t, room+"-orders-cancelled")}
			proxy := tcpproxy.New(t, address)
			cfg := claimcheck.Config{Bucket: bucket, Prefix: "from/" + room, Region: awstest.Region, Endpoint: "http://" + proxy.Addr(), AllowPrivate: true, MaxInlineBytes: 1, Timeout: time.Minute}
			as := func(id, key string) func(*testing.T, *slog.Logger) driver.Sink {
				return func(t *testing.T, log *slog.Logger) driver.Sink {
					awstest.Login(t, awstest.KeyID, awstest.SecretKey, awstest.Token)
					to, err := sqs.Open(sqs.Config{QueueURL: "https://sqs." + awstest.Region + ".amazonaws.com/" + awstest.Account + "/" + room + "-{topic}", Settings: sqs.Settings{Endpoint: "http://" + queues.Address, AllowPrivate: true, Timeout: time.Minute}}, log)
					check(t, err)
					awstest.Login(t, id, key, awstest.Token)
					store, err := s3.Open(cfg)
					check(t, err)
					return claimcheck.Wrap(to, store, "orders", cfg.MaxInlineBytes)
				}
			}
			return &sinktest.Destination{
				Topics:       []string{"orders.placed", "orders.cancelled"},
				LargePayload: 4 << 20, // no queue takes that
				Open:         as(awstest.KeyID, awstest.SecretKey),
				Drain: func(t *testing.T, n int) []sinktest.Received {
					got := queues.Drain(t, n, names...)
					awstest.Login(t, awstest.KeyID, awstest.SecretKey, "")
					direct := cfg
					direct.Endpoint = "http://" + address
					opened(t, open(t, direct), got)
					return got
				},
				Down: proxy.Refuse, Up: proxy.Resume,
				Restart: func(t *testing.T) { emulator.Restart(t) },
				Stall:   func() { proxy.Stall(tcpproxy.Both) },
				// The last of its Send that has a payload to store, and no queue.
				Unroutable: &penstock.Message{ID: "lost", Topic: "invoices.sent", Payload: []byte("xyz")},
				Secrets:    []string{awstest.SecretKey, awstest.DeniedKey, awstest.Token},
				OpenDenied: as(awstest.DeniedID, awstest.DeniedKey),
			}
		},
	})
}

func open(t *testing.T, cfg claimcheck.Config) *s3.Store {
	t.Helper()
	cfg.Region, cfg.AllowPrivate = awstest.Region, true
	store, err := s3.Open(cfg)
	check(t, err)
	t.Cleanup(store.Close)
	return store
}

// opened does what a consumer does.
func opened(t *testing.T, store claimcheck.Store, got []sinktest.Received) {
	for i := range got {
		payload, err := claimcheck.Open(context.Background(), got[i].Headers[penstock.HeaderClaimCheck], got[i].Payload, store.Get)
		if err != nil {
			t.Error(err)
		}
		if _, claimed := got[i].Headers[penstock.HeaderClaimCheck]; claimed != (len(payload) > 1) {
			t.Errorf("%s has %d bytes, and a reference: %v", got[i].ID, len(payload), claimed)
		}
		got[i].Payload = payload
		delete(got[i].Headers, penstock.HeaderClaimCheck)
	}
}

// Each refusal has the next step, and an outage is not the fault of a message.
func TestRefusals(t *testing.T) {
	objects := awstest.StartS3(t, bucket)
	awstest.Login(t, awstest.KeyID, awstest.SecretKey, awstest.Token)
	store := open(t, claimcheck.Config{Bucket: bucket, Prefix: "orders", Endpoint: "http://" + objects.Address})
	for _, c := range []struct {
		code, want string
		away       bool
	}{
		{"AccessDenied", "permit s3:PutObject on arn:aws:s3:::payloads/orders/*", true},
		{"NoSuchBucket", "create the bucket payloads", true},
		{"PermanentRedirect", "set region to the bucket's", true},
		{"ExpiredToken", "check the credentials", true},
		{"SlowDown", "SlowDown", true},
		{"BadDigest", "BadDigest", false},
	} {
		objects.Refuse(c.code)
		if _, err := store.Put(t.Context(), claimcheck.Object{Name: "a"}); err == nil || !strings.Contains(err.Error(), c.want) || penstock.IsUnavailable(err) != c.away {
			t.Errorf("%s: %v", c.code, err)
		}
	}
	objects.Refuse("")
	if _, err := store.Put(t.Context(), claimcheck.Object{Name: "a", Payload: []byte("b")}); err == nil || !strings.Contains(err.Error(), "BadDigest") {
		t.Errorf("a wrong SHA-256: %v", err)
	}
	public, err := s3.Open(claimcheck.Config{Bucket: bucket, Region: awstest.Region, Endpoint: strings.Replace("http://"+objects.Address, "127.0.0.1", "localhost", 1)})
	check(t, err)
	if _, err := public.Put(t.Context(), claimcheck.Object{Name: "a"}); err == nil || !strings.Contains(err.Error(), "allow_private") || objects.Puts() > 0 {
		t.Errorf("a private address: %v", err)
	}
}

// Which rules delete the payloads.
func TestReach(t *testing.T) {
	objects := awstest.StartS3(t, bucket)
	awstest.Login(t, awstest.KeyID, awstest.SecretKey, awstest.Token)
	store := open(t, claimcheck.Config{Bucket: bucket, Prefix: "a/b", Endpoint: "http://" + objects.Address})
	const days = "<Expiration><Days>14</Days></Expiration>"
	for rule, deletes := range map[string]bool{
		"": false,
		"<Rule><Status>Enabled</Status><Filter><Prefix>a/b/</Prefix></Filter>" + days + "</Rule>":                                                  true,
		"<Rule><Status>Enabled</Status><Filter><Prefix></Prefix></Filter>" + days + "</Rule>":                                                      true,
		"<Rule><Status>Enabled</Status><Prefix>a/</Prefix>" + days + "</Rule>":                                                                     true,
		"<Rule><Status>Disabled</Status><Prefix>a/</Prefix>" + days + "</Rule>":                                                                    false,
		"<Rule><Status>Enabled</Status><Filter><Prefix>a/b/c</Prefix></Filter>" + days + "</Rule>":                                                 false,
		"<Rule><Status>Enabled</Status><Filter><Tag><Key>k</Key><Value>v</Value></Tag></Filter>" + days + "</Rule>":                                false,
		"<Rule><Status>Enabled</Status><Filter><Prefix></Prefix></Filter><Expiration><Date>2030-01-01T00:00:00Z</Date></Expiration></Rule>":        false,
		"<Rule><Status>Enabled</Status><Filter><And><Prefix></Prefix><ObjectSizeLessThan>9</ObjectSizeLessThan></And></Filter>" + days + "</Rule>": false,
	} {
		objects.Lifecycle(rule)
		warning, err := store.Reach(t.Context())
		if err != nil || (warning == "") != deletes || !deletes && warning != "no lifecycle rule deletes the objects of s3://payloads/a/b/" {
			t.Errorf("%s: %q, %v", rule, warning, err)
		}
	}
	objects.Refuse("AccessDenied")
	if _, err := store.Reach(t.Context()); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
	objects.Refuse("NoSuchBucket")
	if _, err := store.Reach(t.Context()); err == nil || errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "create the bucket") {
		t.Error(err)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
