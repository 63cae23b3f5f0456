package msk

import (
	"log/slog"
	"testing"

	"github.com/penstock/penstock/internal/test/awstest"
	"github.com/penstock/penstock/sink/kafka"
)

func TestCredentials(t *testing.T) {
	awstest.Login(t, awstest.KeyID, awstest.SecretKey, awstest.Token)
	got, err := new(chain).Retrieve(t.Context())
	if err != nil || got.AccessKey != awstest.KeyID || got.SecretKey != awstest.SecretKey || got.SessionToken != awstest.Token {
		t.Errorf("%+v, %v", got, err)
	}
	awstest.Login(t, "", "", "")
	if got, err := new(chain).Retrieve(t.Context()); err == nil {
		t.Errorf("without any credentials: %+v", got)
	}
	sink, err := Driver.Open(kafka.Config{URL: "kafkas://127.0.0.1:1", SASL: "aws-msk-iam"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
