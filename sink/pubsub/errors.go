package pubsub

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock/penstock"
)

var errNoClient = errors.New("pubsub has no client")

// aboutMessages reports whether a request was refused for its contents.
func aboutMessages(err error) bool { return err != nil && status.Code(err) == codes.InvalidArgument }

// verdict translates a request's error for each of its messages; nil for nil.
func (s *Sink) verdict(ctx context.Context, topic string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, errNoClient) {
		return penstock.Unavailable(penstock.WithHint(err, "give the program an account (workload identity), or name a file of credentials in GOOGLE_APPLICATION_CREDENTIALS"))
	}
	if ctx.Err() != nil {
		return penstock.Unavailable(fmt.Errorf("pubsub has not confirmed the message in time: %w", context.Cause(ctx)))
	}
	answer, ok := status.FromError(err)
	if !ok {
		return penstock.Unavailable(fmt.Errorf("pubsub: %w", err))
	}
	said := fmt.Errorf("pubsub refuses: %s: %s", answer.Code(), text(answer.Message()))
	switch answer.Code() {
	case codes.InvalidArgument, codes.OutOfRange:
		return penstock.Permanent(penstock.WithHint(said, "if it is about size, set claim_check, which sends a reference; a topic with a schema takes only matching messages"))
	case codes.ResourceExhausted:
		return penstock.Unavailable(penstock.WithHint(said, "the relay slows down; ask Google for a higher quota if it happens all the time"))
	case codes.Unauthenticated:
		return penstock.Unavailable(penstock.WithHint(said, "check the credentials of the program"))
	case codes.NotFound, codes.PermissionDenied, codes.FailedPrecondition:
		said = penstock.WithHint(said, "see that %s exists, that its key of encryption can be used, and that the account has roles/pubsub.publisher", topic)
		if s.topic.Fixed() {
			return penstock.Unavailable(said)
		}
		return said
	case codes.DeadlineExceeded:
		return penstock.Unavailable(fmt.Errorf("pubsub has not answered within %v", s.cfg.Timeout))
	case codes.Unavailable, codes.Canceled:
		return penstock.Unavailable(penstock.WithHint(fmt.Errorf("pubsub cannot be reached: %s", text(answer.Message())), "see that the network reaches it; the relay tries again"))
	}
	return penstock.Unavailable(said)
}

// text is the first line of the message of the service or the library.
func text(message string) string {
	message, _, _ = strings.Cut(message, "\n")
	return strings.TrimSpace(message)
}
