package rabbitmq

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tlsconfig"
)

// verdicts is Send's answer in the making: nil as long as nothing failed.
type verdicts struct {
	errs []error
	n    int
}

func (v *verdicts) set(i int, err error) {
	if v.errs == nil {
		v.errs = make([]error, v.n)
	}
	v.errs[i] = err
}

func (v *verdicts) setAll(which []int, err error) {
	for _, i := range which {
		v.set(i, err)
	}
}

// unroutable: the broker has accepted the message and dropped it. Another attempt makes sense,
// because someone may bind a queue.
func unroutable(r *returned) error {
	if r.exchange == "" {
		return penstock.WithHint(fmt.Errorf("there is no queue named %q", r.key),
			"RabbitMQ threw the message away: create the queue, or name one with declare_queue, or set exchange and routing_key to those of your queues' bindings")
	}
	return penstock.WithHint(fmt.Errorf("no queue is bound to exchange %q with routing key %q", r.exchange, r.key),
		"RabbitMQ threw the message away: bind a queue, or change routing_key")
}

// pauseNacked is when a message that was nacked is sent again.
const pauseNacked = time.Second

// refused: a nack. RabbitMQ sends it for a problem of a queue, whatever the message: it is full
// and rejects more, or has no leader.
func refused() error {
	return penstock.RetryAfter(penstock.Unavailable(penstock.WithHint(errors.New("RabbitMQ did not take responsibility for the message (nack)"),
		"a queue is full and rejects more, or failed; see its policy and RabbitMQ's log")), pauseNacked)
}

// gaveUp: the Send's time is over.
func gaveUp(cause error, blocked string) error {
	if blocked != "" {
		return penstock.Unavailable(penstock.WithHint(fmt.Errorf("RabbitMQ has blocked all publishers (%s): %w", blocked, cause),
			"free memory or disk space on the broker; the relay then continues"))
	}
	return penstock.Unavailable(fmt.Errorf("RabbitMQ has not confirmed the message in time: %w", cause))
}

func closed() error {
	return penstock.Unavailable(fmt.Errorf("RabbitMQ sink: %w", penstock.ErrClosed))
}

// errSuspect: one of the messages closed the channel, and it is unknown which.
var errSuspect = errors.New("suspect")

// closedBecause is the verdict on messages in flight when their channel closed. AMQP closes a
// channel if one method is wrong, and the connection for everything else.
func closedBecause(e *amqp.Error, alone bool) error {
	switch {
	case e == nil:
		return closed()
	case !alone:
		return penstock.Unavailable(fmt.Errorf("the connection to RabbitMQ was lost: %s", said(e)))
	case isWholeExchange(e):
		return penstock.Unavailable(explainExchange(e))
	}
	return errSuspect
}

// isWholeExchange: no message at all can be published to the exchange. (A user
// may also be refused single routing keys; RabbitMQ calls those topics.)
func isWholeExchange(e *amqp.Error) bool {
	return e.Code == amqp.NotFound || e.Code == amqp.AccessRefused && !strings.Contains(e.Reason, "access to topic")
}

func explainExchange(e *amqp.Error) error {
	err := fmt.Errorf("RabbitMQ refuses to publish: %s", said(e))
	if e.Code == amqp.NotFound {
		return penstock.WithHint(err, "create the exchange, or correct exchange in the configuration")
	}
	return penstock.WithHint(err, "give the user write permission on the exchange")
}

// explainGuilty is the verdict on a message that alone closes a channel.
func explainGuilty(e *amqp.Error) error {
	err := fmt.Errorf("RabbitMQ does not take this message: %s", said(e))
	switch e.Code {
	case amqp.PreconditionFailed, amqp.ContentTooLarge:
		return penstock.Permanent(penstock.WithHint(err, "raise max_message_size on the broker if it is about size, else change the message"))
	case amqp.AccessRefused:
		return penstock.WithHint(err, "give the user permission to write to this routing key")
	}
	return err
}

// said is the broker's text, without the library's decoration.
func said(e *amqp.Error) string {
	if e.Server {
		return fmt.Sprintf("%s (code %d)", e.Reason, e.Code)
	}
	return e.Reason
}

func explainDial(address string, err error) error {
	err = fmt.Errorf("connect to RabbitMQ at %s: %w", address, err)
	return penstock.WithHint(err, "%s", cmp.Or(tlsconfig.Hint(err), "see that the broker runs and url names it; the relay tries again"))
}

// explainDeclare is about a queue that cannot be made, after the login.
func explainDeclare(queue string, err error) error {
	var e *amqp.Error
	if !errors.As(err, &e) || !e.Server {
		return fmt.Errorf("declare_queue %q: %w", queue, err)
	}
	return penstock.WithHint(fmt.Errorf("declare_queue %q: %s", queue, said(e)), "choose another name, or give the user the right to configure it; or create the queue yourself and leave out declare_queue")
}

func explainLogin(address string, uri amqp.URI, err error) error {
	if hinted, ok := errors.AsType[*penstock.HintError](err); ok { // it is not about the login
		return penstock.WithHint(fmt.Errorf("RabbitMQ at %s: %w", address, hinted.Err), "%s", hinted.Hint)
	}
	var e *amqp.Error
	if !errors.As(err, &e) || !e.Server && e.Code != amqp.AccessRefused {
		return penstock.WithHint(fmt.Errorf("log in to RabbitMQ at %s: %w", address, err), "see that it is RabbitMQ that answers there; the relay tries again")
	}
	err = fmt.Errorf("log in to RabbitMQ at %s: %s", address, said(e))
	switch {
	case e == amqp.ErrVhost || e.Code == amqp.NotAllowed:
		return penstock.WithHint(err, "see that the virtual host %q exists and that user %q may use it", uri.Vhost, uri.Username)
	case e.Code == amqp.AccessRefused:
		return penstock.WithHint(err, "check the user name (%q) and the password", uri.Username)
	}
	return err
}
