// Package claimcheck stores large payloads outside of messages, and opens them for consumers: the
// pattern Claim Check. The message carries a reference. See DESIGN.md.
//
// Wrap is for the relay. Open is for consumers. Package claimcheck/s3 stores payloads in Amazon S3 and compatible
// stores, so programs with this package alone contain no SDK.
package claimcheck

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/gate"
)

// Store keeps payloads. It deletes none.
type Store interface {
	// Put writes an object and returns its URL once it is durable. It may exist already, with the same content. Its
	// errors have the classes of driver.Sink.
	Put(ctx context.Context, o Object) (url string, err error)
	// Get reads the object of that name.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// Reach connects and changes nothing. warning has news about the store for an operator. The error is
	// fs.ErrPermission if only the question was refused.
	Reach(ctx context.Context) (warning string, err error)
	// Close closes idle connections.
	Close()
}

// Object is a payload to store.
type Object struct {
	Name        string // hexadecimal digits
	Payload     []byte
	SHA256      [sha256.Size]byte // of Payload
	ContentType string            // empty if it is not known
}

// Puts is how many objects are written at once.
const Puts = 32

// Wrap returns a sink that stores payloads of more than maxInlineBytes before it sends their messages to sink
// with a reference. Other messages it sends unchanged. from is the outbox or the adopted table. It is a part of the objects'
// names, together with the message's id and payload, so a message that is sent again has the same object.
//
// Each object is written again with each attempt. So it is there when its message is sent, however long the
// message has been parked or dead.
//
// The result is a driver.InOrderSink. Its KeepsOrder returns that of sink. Its Close also closes sink and store.
func Wrap(sink driver.Sink, store Store, from string, maxInlineBytes int) driver.InOrderSink {
	c := &checked{sink: sink, store: store, from: from, maxInline: maxInlineBytes, slots: make(chan struct{}, Puts)}
	if s, ok := sink.(driver.InOrderSink); ok {
		c.keepsOrder = s.KeepsOrder()
	}
	return c
}

type checked struct {
	sink       driver.Sink
	store      Store
	from       string
	maxInline  int
	keepsOrder bool
	slots      chan struct{}
	gate       gate.Gate
}

var _ driver.InOrderSink = (*checked)(nil)

// KeepsOrder implements driver.InOrderSink. After a message whose payload cannot be stored, later ones of its key are not sent.
func (c *checked) KeepsOrder() bool { return c.keepsOrder }

// Close implements driver.Sink.
func (c *checked) Close(ctx context.Context) error {
	err := c.gate.CloseSink(ctx, "claim check", c.store.Close)
	return errors.Join(err, c.sink.Close(ctx))
}

// errHeldBack has no class: nothing is wrong with the message.
var errHeldBack = errors.New("held back: the payload of an earlier message with the same key cannot be stored")

// Send implements driver.Sink.
func (c *checked) Send(ctx context.Context, msgs []penstock.Message) []error {
	if !slices.ContainsFunc(msgs, func(m penstock.Message) bool { return len(m.Payload) > c.maxInline }) {
		return c.sink.Send(ctx, msgs)
	}
	return c.storeAndSend(ctx, msgs)
}

func (c *checked) storeAndSend(ctx context.Context, msgs []penstock.Message) []error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pass := c.gate.Enter(cancel)
	if pass == nil {
		return driver.SendError(msgs, penstock.Unavailable(fmt.Errorf("claim check: %w", penstock.ErrClosed)))
	}
	defer pass.Leave()
	sent, errs := make([]penstock.Message, 0, len(msgs)), make([]error, len(msgs))
	stored := slices.Clone(msgs)
	var running sync.WaitGroup
	for i := range stored {
		if len(stored[i].Payload) > c.maxInline {
			running.Go(func() { errs[i] = c.check(ctx, &stored[i]) })
		}
	}
	running.Wait()
	held := map[string]bool{}
	for i := range stored {
		key := stored[i].Key
		switch {
		case errs[i] != nil:
			held[key] = c.keepsOrder && key != ""
		case held[key]:
			errs[i] = errHeldBack
		default:
			sent = append(sent, stored[i])
		}
	}
	if len(sent) == 0 {
		return errs
	}
	answers := c.sink.Send(ctx, sent)
	if answers == nil && len(sent) == len(msgs) {
		return nil
	}
	next := 0
	for i, err := range errs {
		if err == nil {
			if answers != nil {
				errs[i] = answers[next]
			}
			next++
		}
	}
	return errs
}

// check stores the payload of m, and replaces it with the reference.
func (c *checked) check(ctx context.Context, m *penstock.Message) error {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return penstock.Unavailable(fmt.Errorf("claim check: %w", context.Cause(ctx)))
	}
	o := Object{Payload: m.Payload, SHA256: sha256.Sum256(m.Payload), ContentType: m.Headers["content-type"]}
	if strings.ContainsFunc(o.ContentType, func(r rune) bool { return r < ' ' || r > '~' }) || len(o.ContentType) > 256 {
		o.ContentType = "" // HTTP cannot carry it, or Pub/Sub the reference
	}
	name := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%x", c.from, m.ID, o.SHA256))
	o.Name = hex.EncodeToString(name[:])
	url, err := c.store.Put(ctx, o)
	if err != nil {
		return fmt.Errorf("claim check: %w", err)
	}
	reference, err := json.Marshal(Reference{URL: url, Bytes: int64(len(m.Payload)), SHA256: hex.EncodeToString(o.SHA256[:]), ContentType: o.ContentType})
	if err != nil {
		return penstock.Permanent(err)
	}
	headers := make(map[string]string, len(m.Headers)+1)
	maps.Copy(headers, m.Headers)
	headers[penstock.HeaderClaimCheck] = string(reference)
	m.Headers, m.Payload = headers, fmt.Appendf(nil, "[%q,%s]", penstock.HeaderClaimCheck, reference) // sink/format knows this form
	return nil
}
