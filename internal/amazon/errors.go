package amazon

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/publicaddr"
)

// pauseThrottled is when an entry that was throttled is sent again.
const pauseThrottled = time.Second

// kind of an error code. Both services have several names for a thing, from several versions of
// their protocols, and with or without a namespace and the word Exception.
type kind int

const (
	other       kind = iota
	all              // true of every message: rights, keys of encryption
	credentials      // so are these
	destination      // the queue or topic
	throttled
	content // this message can never be sent
)

func kindOf(code string) kind {
	code = code[strings.LastIndexAny(code, ".#")+1:]
	code = strings.TrimSuffix(strings.TrimSuffix(code, "Exception"), "Error")
	switch code {
	case "QueueDoesNotExist", "NonExistentQueue", "NotFound", "ResourceNotFound", "AccessDenied", "Authorization", "AuthorizationError", "QueueDeletedRecently", "InvalidAddress":
		return destination
	case "InvalidClientTokenId", "UnrecognizedClient", "ExpiredToken", "SignatureDoesNotMatch", "InvalidSecurity", "MissingAuthenticationToken",
		"InvalidSignature", "InvalidAccessKeyId", "InvalidToken", "TokenRefreshRequired":
		return credentials
	case "IncompleteSignature", "OptInRequired", "UnsupportedOperation", "InvalidAction", "Internal", "InternalFailure", "ServiceUnavailable":
		return all
	case "RequestThrottled", "Throttling", "Throttled", "KmsThrottled", "KMSThrottling", "OverLimit", "RequestLimitExceeded", "TooManyRequests", "ThrottledRequest":
		return throttled
	case "InvalidMessageContents", "InvalidParameterValue", "InvalidParameter", "InvalidAttributeValue", "BatchRequestTooLong", "Validation", "MissingParameter":
		return content
	}
	if strings.HasPrefix(strings.ToUpper(code), "KMS") {
		return all
	}
	return other
}

// aboutEntries reports whether a request may have been refused for one of its entries.
func aboutEntries(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return false
	}
	k := kindOf(api.ErrorCode())
	return k == content || k == other && badRequest(err)
}

// badRequest: the status says that the request is at fault, and not who makes it.
func badRequest(err error) bool {
	answer, ok := errors.AsType[*smithyhttp.ResponseError](err)
	if !ok {
		return false
	}
	status := answer.HTTPStatusCode()
	return status >= 400 && status < 500 && status != http.StatusUnauthorized && status != http.StatusForbidden && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout
}

// Explain is the error of a whole request, which of an entry alone may be about its message; nil for nil.
func (s *Sender) Explain(to string, err error) error {
	if err == nil {
		return nil
	}
	code, said := Said(s.service, err)
	if penstock.IsUnavailable(said) {
		return said
	}
	switch kindOf(code) {
	case throttled:
		return penstock.Unavailable(penstock.WithHint(said, "the relay slows down; ask AWS for a higher quota if it happens all the time"))
	case destination:
		said = penstock.WithHint(said, "see that %s exists in the region, and that the role may send to it", to)
		if s.dest.Fixed() {
			return penstock.Unavailable(said)
		}
		return said
	case content:
		return s.content(said)
	case all, credentials:
		return penstock.Unavailable(penstock.WithHint(said, "check the credentials, their rights and the key of encryption"))
	}
	if !badRequest(err) {
		return penstock.Unavailable(said)
	}
	return said
}

// Said is the code of a service's answer, and an error with its text that has no class yet. Without an answer the error is
// Unavailable and has a hint.
func Said(service string, err error) (code string, said error) {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode(), fmt.Errorf("%s refuses: %s", service, text(api.ErrorCode(), api.ErrorMessage()))
	}
	hint := "see that the network reaches it; the relay tries again"
	if strings.Contains(err.Error(), "get identity") || strings.Contains(err.Error(), "retrieve credentials") {
		hint = "give the program a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or profile"
	} else if _, private := errors.AsType[*publicaddr.Error](err); private {
		hint = publicaddr.AllowHint
	}
	if inner, ok := errors.AsType[*url.Error](err); ok {
		err = inner.Err
	}
	return "", penstock.Unavailable(penstock.WithHint(fmt.Errorf("%s cannot be reached: %w", service, err), "%s", hint))
}

// verdict is the error of an entry that failed alone.
func (s *Sender) verdict(f Failure) error {
	said := fmt.Errorf("%s refuses the message: %s", s.service, text(f.Code, f.Message))
	switch k := kindOf(f.Code); {
	case k == throttled || !f.SenderFault:
		// Others of the batch were taken: other keys continue.
		return penstock.RetryAfter(penstock.Unavailable(said), pauseThrottled)
	case k == content:
		return s.content(said)
	case k == all, k == credentials, k == destination && s.dest.Fixed():
		return penstock.Unavailable(said)
	}
	return said
}

func (s *Sender) content(said error) error {
	return penstock.Permanent(penstock.WithHint(said, "if it is about size, set claim_check, which sends a reference, and set max_message_bytes (%d) to the limit of the queue or topic", s.set.MaxMessageBytes))
}

// text is the service's message, without its quotations of the request: a signature's text has the
// session token in it.
func text(code, message string) string {
	message, _, _ = strings.Cut(message, "\n")
	for _, quote := range []string{"The Canonical String", "The String-to-Sign"} {
		message, _, _ = strings.Cut(message, quote)
	}
	return strings.TrimSpace(code + ": " + message)
}
