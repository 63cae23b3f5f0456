package sqs_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/awstest"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/sink/sqs"
)

func open(t *testing.T, e *awstest.Emulator, queue string) *sqs.Sink {
	t.Helper()
	awstest.Login(t, awstest.KeyID, awstest.SecretKey, "")
	s, err := sqs.Open(sqs.Config{QueueURL: queue, Settings: sqs.Settings{Endpoint: "http://" + e.Address, AllowPrivate: true}}, nil)
	check(t, err)
	t.Cleanup(func() { check(t, s.Close(patient(t))) })
	return s
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), sinktest.Patience)
	t.Cleanup(cancel)
	return ctx
}

func messages(n int) []penstock.Message {
	msgs := make([]penstock.Message, n)
	for i := range msgs {
		msgs[i] = penstock.Message{ID: fmt.Sprintf("id-%d", i), Key: fmt.Sprintf("key-%d", i), Topic: "orders", Payload: fmt.Appendf(nil, "payload %d", i)}
	}
	return msgs
}

// The codes of whole requests, and what the relay makes of them.
func TestRefusedRequests(t *testing.T) {
	e := awstest.StartFake(t)
	sink := open(t, e, e.Queue(t, "orders"))
	for code, class := range map[string]func(error) bool{
		"RequestThrottled": penstock.IsUnavailable, "ThrottlingException": penstock.IsUnavailable, "OverLimit": penstock.IsUnavailable,
		"KmsThrottled": penstock.IsUnavailable, "KmsAccessDenied": penstock.IsUnavailable, "ServiceUnavailable": penstock.IsUnavailable,
		"AccessDeniedException": penstock.IsUnavailable, "ExpiredTokenException": penstock.IsUnavailable, "QueueDoesNotExist": penstock.IsUnavailable,
		"InvalidMessageContents": penstock.IsPermanent, "BatchRequestTooLong": penstock.IsPermanent,
		"SomethingNew": func(err error) bool { return !penstock.IsPermanent(err) && !penstock.IsUnavailable(err) },
	} {
		e.Fake.RefuseAll(code)
		errs := sink.Send(patient(t), messages(3))
		if len(errs) != 3 {
			t.Fatalf("%s: %v", code, errs)
		}
		for _, err := range errs {
			if err == nil || !class(err) || !strings.Contains(err.Error(), strings.TrimSuffix(code, "Exception")) {
				t.Errorf("%s: %v", code, err)
			}
		}
	}
	e.Fake.RefuseAll("")
	if errs := sink.Send(patient(t), messages(3)); errs != nil {
		t.Errorf("after all that: %v", errs)
	}
}

// Keys that end are an outage. Those that replace them in the file are used without a restart.
func TestReplacedKeys(t *testing.T) {
	e := awstest.StartFake(t)
	awstest.Login(t, "", "", "")
	file := filepath.Join(t.TempDir(), "credentials")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	keys := func(id string) {
		check(t, os.WriteFile(file, fmt.Appendf(nil, "[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", id, awstest.SecretKey), 0o600))
	}
	keys(awstest.DeniedID)
	sink, err := sqs.Open(sqs.Config{QueueURL: e.Queue(t, "orders"), Settings: sqs.Settings{Endpoint: "http://" + e.Address, AllowPrivate: true}}, nil)
	check(t, err)
	defer sink.Close(patient(t))
	for range 2 {
		if errs := sink.Send(patient(t), messages(1)); errs == nil || !penstock.IsUnavailable(errs[0]) || !strings.Contains(errs[0].Error(), "check the credentials") {
			t.Fatalf("keys that are refused: %v", errs)
		}
	}
	keys(awstest.KeyID)
	if errs := sink.Send(patient(t), messages(1)); errs != nil {
		t.Fatalf("the file has other keys: %v", errs)
	}
	check(t, os.WriteFile(file, []byte("[half"), 0o600))
	e.Fake.RefuseAll("ExpiredTokenException")
	if errs := sink.Send(patient(t), messages(1)); errs == nil || !penstock.IsUnavailable(errs[0]) {
		t.Errorf("an expired token: %v", errs)
	}
	e.Fake.RefuseAll("")
	if errs := sink.Send(patient(t), messages(1)); errs != nil {
		t.Errorf("a file that is half written: %v", errs)
	}
}

// Each entry has its own verdict, and a throttled one spends no attempt and stops no other key.
func TestRefusedEntries(t *testing.T) {
	e := awstest.StartFake(t)
	sink := open(t, e, e.Queue(t, "orders.fifo"))
	e.Fake.RefuseEntries(func(_, body string) (string, bool) {
		switch body {
		case "payload 3":
			return "ThrottlingException", true
		case "payload 5":
			return "InternalError", false
		case "payload 11":
			return "InvalidMessageContents", true
		case "payload 13":
			return "SomethingNew", true
		}
		return "", false
	})
	errs := sink.Send(patient(t), messages(25))
	for i, err := range errs {
		_, pauses := penstock.RetryDelay(err)
		ok := err == nil
		switch i {
		case 3, 5:
			ok = penstock.IsUnavailable(err) && pauses
		case 11:
			ok = penstock.IsPermanent(err)
		case 13:
			ok = err != nil && !penstock.IsPermanent(err) && !penstock.IsUnavailable(err)
		}
		if !ok {
			t.Errorf("message %d: %v", i, err)
		}
	}
	sizes := e.Fake.Batches()
	slices.Sort(sizes)
	if !slices.Equal(sizes, []int{5, 10, 10}) {
		t.Errorf("25 messages went in batches of %v", sizes)
	}
}

// The queue takes less than the sink was told: one message is refused with the queue's limit in the
// reason, and the others of its batch are delivered.
func TestQueueTakesLess(t *testing.T) {
	e := awstest.StartFake(t)
	queue := e.Queue(t, "orders")
	sink := open(t, e, queue)
	e.Fake.MaxBytes(256 << 10)
	msgs := messages(10)
	msgs[4].Payload = []byte(strings.Repeat("x", 256<<10+1))
	errs := sink.Send(patient(t), msgs)
	for i, err := range errs {
		if (err != nil) != (i == 4) {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if errs == nil || !penstock.IsPermanent(errs[4]) || !strings.Contains(errs[4].Error(), "shorter than 262144 bytes") {
		t.Errorf("too large: %v", errs)
	}
	if got := e.Drain(t, 9, queue); len(got) != 9 {
		t.Errorf("%d of 9 others arrived", len(got))
	}
}

// A message is refused before it is sent if it is above max_message_bytes, and the reason names it.
func TestTooLarge(t *testing.T) {
	e := awstest.StartFake(t)
	awstest.Login(t, awstest.KeyID, awstest.SecretKey, "")
	sink, err := sqs.Open(sqs.Config{QueueURL: e.Queue(t, "orders"), Settings: sqs.Settings{Endpoint: "http://" + e.Address, AllowPrivate: true, MaxMessageBytes: 256 << 10}}, nil)
	check(t, err)
	defer sink.Close(patient(t))
	msgs := messages(2)
	msgs[0].Payload = []byte(strings.Repeat("x", 256<<10+1))
	errs := sink.Send(patient(t), msgs)
	if errs == nil || !penstock.IsPermanent(errs[0]) || errs[1] != nil || !strings.Contains(errs[0].Error(), "max_message_bytes (262144)") {
		t.Error(errs)
	}
}

// A name that leads to an address that is not public is not connected to.
func TestPrivateName(t *testing.T) {
	awstest.Login(t, awstest.KeyID, awstest.SecretKey, "")
	sink, err := sqs.Open(sqs.Config{QueueURL: "https://sqs.eu-west-1.amazonaws.com/1/q", Settings: sqs.Settings{Endpoint: "http://localhost:1"}}, nil)
	check(t, err)
	defer sink.Close(patient(t))
	errs := sink.Send(patient(t), messages(1))
	if errs == nil || !penstock.IsUnavailable(errs[0]) || !strings.Contains(errs[0].Error(), "set allow_private") {
		t.Error(errs)
	}
}

// The questions of doctor.
func TestReach(t *testing.T) {
	e := awstest.StartFake(t)
	awstest.Login(t, awstest.KeyID, awstest.SecretKey, "")
	cfg := sqs.Config{QueueURL: e.Queue(t, "orders"), Settings: sqs.Settings{Endpoint: "http://" + e.Address, AllowPrivate: true}}
	check(t, sqs.Driver.Reach(patient(t), cfg, nil))
	cfg.QueueURL += "-missing"
	if err := sqs.Driver.Reach(patient(t), cfg, nil); err == nil || !strings.Contains(err.Error(), "exists in the region") {
		t.Error(err)
	}
	awstest.Login(t, awstest.DeniedID, awstest.DeniedKey, awstest.Token)
	if err := sqs.Driver.Reach(patient(t), cfg, nil); err == nil || !strings.Contains(err.Error(), "check the credentials") || strings.Contains(err.Error(), awstest.Token) {
		t.Error(err)
	}
}
