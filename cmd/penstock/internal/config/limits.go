package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/relay"
)

// Relay holds the limits of a subscription's relay, as relay.Options explains them. A field that
// the file does not set is zero.
type Relay struct {
	relay.Limits `yaml:",inline"`
	MaxAttempts  Attempts `yaml:"max_attempts"`
	MaxAge       Age      `yaml:"max_age"`
	OnDead       OnDead   `yaml:"on_dead"`
}

// unlimited is the value of MaxAttempts and MaxAge without a limit. It is not 0, so a subscription
// can lift a limit of the top level.
const (
	unlimited     = -1
	unlimitedText = "unlimited"
)

// Attempts is how often a message is sent; less than 0 means without limit.
type Attempts int

// UnmarshalText parses a number from 1, and unlimited.
func (a *Attempts) UnmarshalText(b []byte) error {
	text := string(b)
	if text == unlimitedText {
		*a = unlimited
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || text[0] == '+' {
		return &hintError{problem{fmt.Sprintf("is %q", text), "write a whole number from 1, or " + unlimitedText}}
	}
	*a = Attempts(n)
	return nil
}

// MarshalText writes the text that UnmarshalText parses.
func (a Attempts) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

func (a Attempts) String() string {
	if a < 0 {
		return unlimitedText
	}
	return strconv.Itoa(int(a))
}

// Age is how long a message is tried; less than 0 means without limit.
type Age time.Duration

// UnmarshalText parses a positive duration, and unlimited.
func (a *Age) UnmarshalText(b []byte) error {
	text := string(b)
	if text == unlimitedText {
		*a = unlimited
		return nil
	}
	t, p := parseDuration(text)
	if p == nil && t == 0 {
		p = &problem{fmt.Sprintf("is %q", text), "write a positive duration"}
	}
	if p != nil {
		return &hintError{problem{p.what, p.hint + ", or " + unlimitedText}}
	}
	*a = Age(t)
	return nil
}

// MarshalText writes the text that UnmarshalText parses.
func (a Age) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

func (a Age) String() string {
	if a < 0 {
		return unlimitedText
	}
	return formatDuration(time.Duration(a))
}

// OnDead is relay.OnDead by name.
type OnDead relay.OnDead

// UnmarshalText parses continue and hold.
func (o *OnDead) UnmarshalText(b []byte) error {
	return oneOf(o, b, OnDead(relay.OnDeadContinue), OnDead(relay.OnDeadHold))
}

// Options are relay.Options with these limits and nothing else set.
func (r *Relay) Options() relay.Options {
	return relay.Options{Limits: r.Limits, MaxAttempts: int(r.MaxAttempts), MaxAge: time.Duration(max(r.MaxAge, 0)), OnDead: relay.OnDead(r.OnDead)}
}

// SetDefaults sets the relay's own defaults.
func (r *Relay) SetDefaults() {
	rc := r.Options()
	rc.SetDefaults()
	*r = Relay{rc.Limits, Attempts(rc.MaxAttempts), cmp.Or(r.MaxAge, unlimited), OnDead(rc.OnDead)}
}

// over returns base, replaced by the limits that r sets.
func (r Relay) over(base Relay) Relay {
	to := fieldsOf(reflect.ValueOf(&base).Elem())
	for i, f := range fieldsOf(reflect.ValueOf(r)) {
		if !f.value.IsZero() {
			to[i].value.Set(f.value)
		}
	}
	return base
}

// except returns r without the limits that are the same in base.
func (r Relay) except(base Relay) Relay {
	same := fieldsOf(reflect.ValueOf(base))
	for i, f := range fieldsOf(reflect.ValueOf(&r).Elem()) {
		if f.value.Equal(same[i].value) {
			f.value.SetZero()
		}
	}
	return r
}

// For returns r with limits that suit the sink, whose defaults are set, for those that r leaves
// out. If one of the two limits is set, the relay's own default suits the other better.
func (r Relay) For(s *Sink) Relay {
	if c, ok := s.Config().(interface {
		RelayLimits() (maxBatch, senders int)
	}); ok && r.MaxBatch == 0 && r.Senders == 0 {
		r.MaxBatch, r.Senders = c.RelayLimits()
	}
	return r
}

// decodeNode refuses a limit of 0, which would look like an unset one.
func (r *Relay) decodeNode(d *decoder, n ast.Node, path string) {
	v := reflect.ValueOf(r).Elem()
	d.structure(n, v, path)
	for _, f := range fieldsOf(v) {
		at := join(path, f.key)
		if _, given := d.values[at]; !given || d.broken[at] {
			continue
		}
		switch {
		case f.value.Type() == reflect.TypeFor[int]() && f.value.Int() < 1:
			d.fail(d.near(at), at, problem{"is less than 1", "write 1 or more, or remove the key to have the default"})
		case f.value.IsZero():
			d.fail(d.near(at), at, problem{"is 0", "write a positive duration, or remove the key to have the default"})
		}
	}
}

// limits asks relay.Options, whose errors use the file's names of fields. Limits of a subscription
// may conflict with those of the top level. The error is then at the subscription's own limit, and
// names the other.
func (d *decoder) limits(parent string, r *Relay) {
	rc := r.Options()
	var f *penstock.FieldError
	if d.broken[parent] || !errors.As(rc.Validate(), &f) {
		return
	}
	field := f.Field
	path := join(parent, field)
	at, p := d.near(path), problem{f.Problem, f.Hint}
	_, placed := d.keys[path]
	for _, limit := range fieldsOf(reflect.ValueOf(r).Elem()) {
		if limit.key != field && !slices.Contains(strings.Fields(p.what), limit.key) {
			continue
		}
		own := join(parent, limit.key)
		top, atTop := d.keys[join("relay", limit.key)]
		switch _, given := d.keys[own]; {
		case given && !placed:
			at = d.near(own)
		case given:
		case atTop:
			p.hint += fmt.Sprintf("; %s is %v in line %d", limit.key, show(limit.key, limit.value), top.line)
		default:
			p.hint += fmt.Sprintf("; %s is %v by default", limit.key, show(limit.key, limit.value))
		}
	}
	d.fail(at, path, problem{p.what, d.scrub(p.hint)})
}
