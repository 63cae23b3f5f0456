package penstock_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock"
)

// A subscription delivers matching messages and settles the others unsent.
func ExampleFilter() {
	european := penstock.Filter{Topics: []string{"order.*"}, Headers: map[string]string{"region": "eu"}}
	for _, m := range []penstock.Message{
		{Topic: "order.placed", Headers: map[string]string{"region": "eu"}},
		{Topic: "order.placed", Headers: map[string]string{"region": "us"}},
		{Topic: "order.line.added", Headers: map[string]string{"region": "eu"}},
	} {
		fmt.Println(m.Topic, m.Headers["region"], european.Match(&m))
	}
	// Output:
	// order.placed eu true
	// order.placed us false
	// order.line.added eu false
}

// A sink distinguishes whether an error concerns one message or everything. While the broker is away, no attempt is spent.
func ExampleUnavailable() {
	refused := errors.New("connection refused")
	fmt.Println(penstock.IsUnavailable(refused), penstock.IsUnavailable(penstock.Unavailable(refused)))
	// Output: false true
}

// A handler or sink that is asked to wait shows how long.
func ExampleRetryAfter() {
	err := penstock.RetryAfter(errors.New("429 Too Many Requests"), time.Minute)
	after, told := penstock.RetryDelay(err)
	fmt.Println(err, "| again in", after, told)
	// Output: 429 Too Many Requests | again in 1m0s true
}

// An error gives the operator the next step.
func ExampleWithHint() {
	err := penstock.WithHint(fmt.Errorf("%w: %q", penstock.ErrNoOutbox, "orders"), "penstock outbox create %s makes it", "orders")
	fmt.Println(err)
	fmt.Println(errors.Is(err, penstock.ErrNoOutbox))
	// Output:
	// no such outbox: "orders" (penstock outbox create orders makes it)
	// true
}

// A value that no database or broker could store is refused before anything is written.
func ExampleMessage_Validate() {
	m := penstock.Message{Key: "a\x00b"}
	fmt.Println(m.Validate())
	// Output: key has a NUL at byte 1: text cannot hold NUL; put bytes into the payload or encode them
}

// The class of an error decides about the message or job.
func ExamplePermanent() {
	full := errors.New("the mailbox is full")
	for _, err := range []error{full, penstock.Permanent(full), penstock.RetryAfter(full, time.Hour)} {
		after, told := penstock.RetryDelay(err)
		fmt.Println(err, "| for good:", penstock.IsPermanent(err), "| again in an hour:", told && after == time.Hour)
	}
	// Output:
	// the mailbox is full | for good: false | again in an hour: false
	// the mailbox is full | for good: true | again in an hour: false
	// the mailbox is full | for good: false | again in an hour: true
}
