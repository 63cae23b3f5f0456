package penstock_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock"
)

// A subscription delivers what matches; the other messages are settled unsent.
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

// What an error says decides what happens to the message or job.
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
