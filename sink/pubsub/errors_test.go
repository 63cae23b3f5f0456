package pubsub

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock/penstock"
)

// The class of each code, with one topic for all messages and with topics by message.
func TestVerdicts(t *testing.T) {
	const attempt, permanent, unavailable = "attempt", "permanent", "unavailable"
	for code, want := range map[codes.Code][2]string{
		codes.InvalidArgument:    {permanent, permanent},
		codes.OutOfRange:         {permanent, permanent},
		codes.ResourceExhausted:  {unavailable, unavailable},
		codes.Unauthenticated:    {unavailable, unavailable},
		codes.PermissionDenied:   {unavailable, attempt},
		codes.NotFound:           {unavailable, attempt},
		codes.FailedPrecondition: {unavailable, attempt},
		codes.Unavailable:        {unavailable, unavailable},
		codes.DeadlineExceeded:   {unavailable, unavailable},
		codes.Aborted:            {unavailable, unavailable},
		codes.Internal:           {unavailable, unavailable},
		codes.Unknown:            {unavailable, unavailable},
	} {
		for i, topic := range []string{"orders", "{topic}"} {
			s, err := Open(Config{Project: "p", Topic: topic}, nil)
			if err != nil {
				t.Fatal(err)
			}
			err = s.verdict(t.Context(), "projects/p/topics/orders", status.Error(code, "because"))
			class := attempt
			switch {
			case penstock.IsPermanent(err):
				class = permanent
			case penstock.IsUnavailable(err):
				class = unavailable
			}
			if class != want[i] {
				t.Errorf("%s with topic %s: %s, want %s: %v", code, topic, class, want[i], err)
			}
		}
	}
}

// Without an account the subscription waits, and names the next step.
func TestNoCredentials(t *testing.T) {
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/does/not/exist")
	s, err := Open(Config{Project: "p", Topic: "orders"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	errs := s.Send(t.Context(), []penstock.Message{{ID: "1"}})
	if errs == nil || !penstock.IsUnavailable(errs[0]) || !strings.Contains(errs[0].Error(), "GOOGLE_APPLICATION_CREDENTIALS") {
		t.Error(errs)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if errs := s.Send(t.Context(), []penstock.Message{{ID: "1"}}); errs == nil || !errors.Is(errs[0], penstock.ErrClosed) {
		t.Error(errs)
	}
}
