package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/store/portable"
)

// SetDefaults fills in the unset fields.
func (c *Config) SetDefaults() {
	for i := range c.Subscriptions {
		s := &c.Subscriptions[i]
		// Before defaults are set, because some of them depend on other limits.
		s.Sink.SetDefaults()
		s.Start = cmp.Or(s.Start, FromBeginning)
		s.Relay = s.Relay.over(c.Relay).For(&s.Sink)
		s.Relay.SetDefaults()
		if s.Adopt != nil {
			s.Adopt.SetDefaults()
		}
		if s.Format != nil {
			s.Format.setDefaults(s.Origin())
		}
		if s.ClaimCheck != nil {
			s.ClaimCheck.SetDefaults()
		}
	}
	for i := range c.Workers {
		c.Workers[i].SetDefaults()
	}
	c.Relay.SetDefaults()
	c.Metrics.SetDefaults()
	c.Console.SetDefaults()
	if c.Serve != nil {
		c.Serve.SetDefaults()
	}
	if c.Log.Format == "" {
		c.Log.Format = Text
	}
	if s := drivers.Scheme(c.DatabaseURL.Reveal()); c.Schema == "" && s != "sqlite" && !portable.Is(s) {
		c.Schema = "penstock"
	}
}

// validate checks combinations of values. It does not check values below a reported mistake: a
// misspelt key would be reported twice.
func (d *decoder) validate(c *Config) {
	onlyConsole := len(c.Console.Databases) > 0 && len(c.Subscriptions) == 0 && c.Serve == nil && len(c.Workers) == 0
	if !onlyConsole {
		d.required("", "database_url", c.DatabaseURL.Reveal(), `write database_url: ${PENSTOCK_DATABASE_URL}, or postgres://… or sqlite:FILE itself`)
	}
	if url := c.DatabaseURL.Reveal(); url != "" {
		if err := drivers.CheckStore(url, c.Schema); err != nil {
			d.invalid("", err)
		}
	}
	d.limits("relay", &c.Relay)
	d.invalid("metrics", c.Metrics.Validate())
	d.invalid("console", c.Console.Validate())
	if c.Serve != nil {
		d.invalid("serve", c.Serve.Validate())
	}
	if len(c.Subscriptions) == 0 && c.Serve == nil && len(c.Workers) == 0 && !onlyConsole && !d.broken["workers"] && !d.broken["subscriptions"] && !d.opaque[""] {
		d.fail(d.near("subscriptions"), "subscriptions", problem{"is missing or empty", "list at least one, with name, outbox and sink"})
	}
	for i := range c.Workers {
		if path := fmt.Sprintf("workers[%d]", i); !d.opaque[path] && !d.broken[path] {
			d.invalid(path, c.Workers[i].Validate())
		}
	}
	names := map[[2]string]string{}
	for i, s := range c.Subscriptions {
		path := fmt.Sprintf("subscriptions[%d]", i)
		if d.opaque[path] {
			continue
		}
		d.name(path, "name", s.Name, penstock.MaxSubscriptionBytes, "name the subscription: the cursor is kept under this name")
		d.origin(path, &s)
		id := [2]string{s.Outbox, s.Name}
		if first, twice := names[id]; twice && s.Name != "" && (s.Outbox != "" || s.Adopt != nil) {
			of := "of the same outbox"
			if s.Adopt != nil {
				of = "of another adopted table"
			}
			d.fail(d.near(path+".name"), path+".name", problem{fmt.Sprintf("is %q like %s %s", d.scrub(s.Name), first, of),
				"choose another name: each subscription's state is kept under its own"})
		} else if !twice {
			names[id] = path
		}
		d.filter(path+".filter", &s.Filter)
		d.sink(path+".sink", &c.Subscriptions[i].Sink)
		d.format(path, &c.Subscriptions[i])
		if at := path + ".claim_check"; s.ClaimCheck != nil && !d.broken[at] {
			d.invalid(at, s.ClaimCheck.Validate())
		}
		for _, m := range s.Misfits(c.DatabaseURL) {
			if at := join(path, m.Field); !d.broken[at] && !d.broken[path+".adopt"] {
				d.fail(d.near(at), at, problem{m.Problem, m.Hint})
			}
		}
		if s.Relay != c.Relay && !d.broken["relay"] {
			d.limits(path+".relay", &s.Relay)
		}
	}
	d.sharedTables(c)
}

// Misfits are conflicts within a subscription or with its database, each by the key that has to
// change.
func (s *Subscription) Misfits(database URL) (all []*penstock.FieldError) {
	adopted, other := s.Adopt != nil, drivers.NoTables(database.Reveal())
	_, queue := s.Sink.Queue()
	for _, err := range []error{
		cmp.Or(
			wrong(adopted && other != "", "adopt", "is for tables in PostgreSQL and MariaDB, and the database is "+other, "name an outbox to read instead"),
			wrong(adopted && s.Start == FromNow, "start", "is now for an adopted table, whose rows say themselves which of them wait for delivery",
				"remove it, and mark the other rows as delivered"),
			wrong(adopted && queue, "sink", "is a queue, which only an outbox is forwarded to",
				"name a broker, or write to the queue in the business transaction: penstock.enqueue")),
		// The messages of a queue never leave the database, and all of them become jobs.
		wrong(queue && !s.Filter.Empty(), "filter", "is set for a queue, which gets every message",
			"remove it, or use a separate outbox for the messages of the queue"),
		wrong(queue && s.Format != nil, "format", "is set for a queue, whose jobs have the message's headers and payload as they are", "remove it"),
		wrong(queue && s.ClaimCheck != nil, "claim_check", "is set for a queue, whose jobs stay in the database with their payloads", "remove it"),
		cmp.Or(
			wrong(s.Previous && adopted && !s.Adopt.Ordered(), "previous", "is true, but several workers read the table in no order",
				"remove it, or have one worker read the table"),
			wrong(s.Previous && queue, "previous", "is true for a queue, which runs the jobs of a key one after another anyway", "remove it"),
			wrong(s.Shared && adopted, "shared", "is true for an adopted table", "let several workers read it: adopt.workers"),
			wrong(s.Shared && queue, "shared", "is true for a queue, which is filled within the database", "remove it"),
			wrong(s.Shared && s.Previous, "shared", "is true with previous, which has to know the message before", "remove one of them")),
	} {
		if field, is := errors.AsType[*penstock.FieldError](err); is {
			all = append(all, field)
		}
	}
	return all
}

// origin checks the source of a subscription: an outbox or an adopted table.
func (d *decoder) origin(path string, s *Subscription) {
	switch {
	case s.Adopt != nil && d.keyed(path+".outbox"):
		d.fail(d.near(path+".adopt"), path+".adopt", problem{"is given together with outbox", "a subscription reads one of them: remove the other"})
	case s.Adopt != nil || d.broken[path+".adopt"]:
		d.adopted(path, s)
	default:
		d.name(path, "outbox", s.Outbox, penstock.MaxNameBytes, "name the outbox to read, or describe with adopt the table that is there already")
	}
}

func (d *decoder) required(parent, key, value, hint string) bool {
	path := join(parent, key)
	if value != "" || d.broken[path] || d.opaque[parent] {
		return value != ""
	}
	what := "is missing"
	if _, given := d.keys[path]; given {
		what = "is empty"
	}
	d.fail(d.near(path), path, problem{what, hint})
	return false
}

func (d *decoder) name(parent, key, value string, most int, hint string) {
	if d.required(parent, key, value, hint) && len(value) > most {
		path := join(parent, key)
		d.fail(d.near(path), path, problem{fmt.Sprintf("is %d bytes long", len(value)), fmt.Sprintf("use at most %d", most)})
	}
}

// filter checks one pattern after another, to report the line of each.
func (d *decoder) filter(path string, f *penstock.Filter) {
	if d.broken[path] {
		return
	}
	if f.Topics != nil && len(f.Topics) == 0 {
		at := path + ".topics"
		d.fail(d.near(at), at, problem{"is an empty list", "list a pattern, or remove the key to deliver every topic"})
	}
	for i, pattern := range f.Topics {
		d.filterPart(fmt.Sprintf("%s.topics[%d]", path, i), penstock.Filter{Topics: []string{pattern}})
	}
	for _, name := range slices.Sorted(maps.Keys(f.Headers)) {
		d.filterPart(path+".headers."+printable(name), penstock.Filter{Headers: map[string]string{name: f.Headers[name]}})
	}
}

func (d *decoder) filterPart(path string, f penstock.Filter) {
	if wrong, ok := errors.AsType[*penstock.FieldError](f.Validate()); ok {
		d.fail(d.near(path), path, problem{d.scrub(wrong.Problem), d.scrub(wrong.Hint)})
	}
}

func (d *decoder) sink(path string, s *Sink) {
	if d.broken[path] {
		return
	}
	if s.Name() == "" {
		d.fail(d.near(path), path, problem{"is missing", "write one of " + drivers.OneOf(drivers.SinkNames())})
		return
	}
	if _, asURL := d.values[path]; asURL {
		return // ParseSink has checked it
	}
	d.invalid(path+"."+s.Name(), s.Validate())
}

// invalid finds the place of a Validate error: a *penstock.FieldError names the field by its yaml
// name, dotted for nested fields.
func (d *decoder) invalid(parent string, err error) {
	switch e := err.(type) { //nolint:errorlint // walks the tree itself
	case nil:
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			d.invalid(parent, err)
		}
	case *penstock.FieldError:
		path := join(parent, dotted(e.Field))
		d.fail(d.near(path), path, problem{d.scrub(e.Problem), d.scrub(e.Hint)})
	default:
		if f, ok := errors.AsType[*penstock.FieldError](err); ok {
			d.invalid(parent, f)
			return
		}
		d.fail(d.near(parent), parent, problem{"cannot be used", d.scrub(err.Error())})
	}
}

// dotted is the path of a field in a mapping with user-chosen keys, which Validate calls
// headers["tenant"].
func dotted(field string) string {
	group, key, ok := strings.Cut(strings.TrimSuffix(field, "]"), "[")
	if name, err := strconv.Unquote(key); ok && err == nil {
		return join(group, printable(name))
	}
	return field
}
