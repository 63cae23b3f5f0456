package systemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/awstest"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/sink/claimcheck"
	"github.com/penstock/penstock/sink/claimcheck/s3"
)

// A relay that is killed between object and message: the next one writes the same object, and sends the message. An outage of the object
// store spends no attempt. doctor and status name the cause. A FIFO queue of 256 KiB gets a payload of a byte more.
func TestClaimCheck(t *testing.T) {
	const bucket, large = "payloads", 256<<10 + 1
	objects, queues := awstest.StartS3(t, bucket), awstest.StartFake(t)
	queues.Fake.MaxBytes(256 << 10)
	queue := queues.Queue(t, "orders.fifo")
	database := "sqlite:" + filepath.Join(t.TempDir(), "orders.db")
	withOutbox(t, database, "orders")
	var msgs []penstock.Message
	for i, size := range []int{10, large, 20, large, 30} {
		msgs = append(msgs, penstock.Message{ID: fmt.Sprint("m", i), Key: "k", Payload: []byte(strings.Repeat(fmt.Sprint(i), size))})
	}
	inStore(t, database, func(ctx context.Context, s driver.Store) error { return s.Publish(ctx, "orders", msgs...) })

	config := filepath.Join(t.TempDir(), "penstock.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
database_url: %q
relay: {lease: %s}
subscriptions:
  - name: s
    outbox: orders
    claim_check: {bucket: %s, prefix: orders, region: %s, endpoint: "http://%s", allow_private: true}
    sink: {sqs: {queue_url: "https://sqs.%s.amazonaws.com/%s/orders.fifo", endpoint: "http://%s", allow_private: true, max_message_bytes: 256KiB}}
`, database, shortLease, bucket, awstest.Region, objects.Address, awstest.Region, awstest.Account, queues.Address), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) *process {
		cmd := exec.Command(binary, append(args, "--config", config)...)
		cmd.Env = []string{"AWS_ACCESS_KEY_ID=" + awstest.KeyID, "AWS_SECRET_ACCESS_KEY=" + awstest.SecretKey, "AWS_EC2_METADATA_DISABLED=true"}
		return startCommand(t, cmd)
	}
	report := func(severity string, wants ...string) {
		t.Helper()
		o := run("doctor", "--measure", "1ms", "--json").wait()
		_, found, _ := strings.Cut(o.stdout, `"severity":"`+severity+`","about":"orders/s → claim check","found":`)
		found, _, _ = strings.Cut(found, `{"check"`)
		for _, want := range wants {
			if !strings.Contains(found, want) {
				t.Errorf("doctor does not say %q: %s", want, o.stdout)
			}
		}
	}

	stored, release := make(chan string, 1), make(chan struct{})
	objects.Written(func(key string) {
		select {
		case stored <- key: // the first
			<-release
		default:
		}
	})
	first := run("relay")
	key := <-stored
	first.kill()
	if sent := queues.Drain(t, 1, queue); len(sent) != 1 || sent[0].ID != "m0" {
		t.Fatalf("%d messages were sent before the object was confirmed", len(sent))
	}
	objects.Written(nil)
	close(release)

	objects.Refuse("AccessDenied")
	second := run("relay")
	awaitSubscription(t, database, "orders", "s", "an outage", func(s admin.SubscriptionStatus) bool {
		return strings.Contains(s.SinkError, "permit s3:PutObject on arn:aws:s3:::payloads/orders/*")
	})
	if o := run("status", "--json").wait(); !strings.Contains(o.stdout, "claim check: S3 refuses: AccessDenied") {
		t.Errorf("status: %s", o.stdout)
	}
	report("unknown", "s3:GetLifecycleConfiguration")
	objects.Refuse("NoSuchBucket")
	report("critical", "create the bucket payloads")
	objects.Refuse("")
	report("warning", "no lifecycle rule deletes the objects of s3://payloads/orders/", "add a rule")
	relayed(t, database, "orders")
	second.signal(syscall.SIGTERM)
	if o := second.wait(); o.code != 0 || strings.Contains(o.stderr, awstest.SecretKey) {
		t.Errorf("the relay ended with %d: %s", o.code, o.stderr)
	}

	if all := objects.Objects(bucket); len(all) != 2 || len(all[key].Body) != large || objects.Puts() < 3 {
		t.Errorf("%d objects, written %d times", len(all), objects.Puts())
	}
	awstest.Login(t, awstest.KeyID, awstest.SecretKey, "")
	store, err := s3.Open(claimcheck.Config{Bucket: bucket, Prefix: "orders", Region: awstest.Region, Endpoint: "http://" + objects.Address, AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for i, got := range queues.Drain(t, 4, queue) { // in order, each once, at its first attempt
		payload, err := claimcheck.Open(t.Context(), got.Headers[penstock.HeaderClaimCheck], got.Payload, store.Get)
		if want := msgs[i+1]; err != nil || got.ID != want.ID || string(payload) != string(want.Payload) || got.Headers["penstock-attempt"] != "" {
			t.Errorf("%s: %d bytes, headers %v, %v", got.ID, len(payload), got.Headers, err)
		}
	}
}

// Rows of an adopted table, in the order of their keys, without a configuration file.
func TestClaimCheckOfAnAdoptedTable(t *testing.T) {
	t.Parallel()
	database, payloads := postgrestest.Database(t), t.TempDir()
	execSQL(t, database, outboxMessages)
	execSQL(t, database, `insert into outbox_messages (id, type, content, occurred_on_utc)
		select gen_random_uuid(), 'placed', jsonb_build_object('n', n, 'text', repeat('x', n % 3 * 100)), now() - interval '1 minute' + n * interval '1 second' from generate_series(1, 30) n`)
	relay := start(t, "relay", "--database-url", database, "--adopt", "dotnet", "--sink", "stdout", "--claim-check", "file://"+payloads+"?max_inline_bytes=100")
	relay.await("30 messages", func() bool { return strings.Count(relay.stdout.String(), "\n") == 30 })
	relay.signal(syscall.SIGTERM)
	relay.wait()
	seen := 0
	for line := range strings.Lines(relay.stdout.String()) {
		var m struct {
			Payload string
			Headers map[string]string
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		payload, err := claimcheck.Open(t.Context(), m.Headers[penstock.HeaderClaimCheck], []byte(m.Payload), claimcheck.Directory(payloads).Get)
		var row struct {
			N    int
			Text string
		}
		if err != nil || json.Unmarshal(payload, &row) != nil || len(row.Text) != row.N%3*100 || (m.Headers[penstock.HeaderClaimCheck] != "") != (len(payload) > 100) {
			t.Errorf("%s: %q, %v", line, payload, err)
		}
		if seen++; row.N != seen {
			t.Errorf("row %d came at place %d", row.N, seen)
		}
	}
}
