package adopted

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
)

// Config describes a table that Penstock did not create, and the meaning of its columns. The zero value
// of a field means its default, or the preset's: see SetDefaults.
type Config struct {
	// Preset names a well-known table; see Presets. Other fields that are set replace its values.
	Preset string `yaml:"preset"`
	// Table is "table" or "schema.table", in the case in which the database has
	// it. Without a schema the connection's search path finds it.
	Table string `yaml:"table"`

	Columns Columns `yaml:"columns"`

	// Topic, Key and MessageID are templates over the table's columns, such as
	// "outbox.event.{aggregatetype}"; {{ and }} are literal braces. A column that is NULL is empty.
	// Topic's default is the column Columns.Topic, or else the table's name. Key's default is the
	// column Columns.Key, or else no key. MessageID's default is the id. If the id is a number, the
	// table's name goes before it, because other tables have that number as well.
	Topic     string `yaml:"topic"`
	Key       string `yaml:"key"`
	MessageID string `yaml:"message_id"`
	// Headers are also templates, by the header's name. One whose column is NULL is left out.
	Headers map[string]string `yaml:"headers"`

	// Delivered is the mark of a row that the sink has confirmed. Default: Mark or Status,
	// whichever column is mapped.
	Delivered Delivered `yaml:"delivered"`
	// Archive is the table to which Delivered: archive moves rows. It has the columns
	// of Table, and may have others with defaults.
	Archive string `yaml:"archive"`
	// Status has the values of the status column.
	Status Status `yaml:"status"`

	// Workers is how many claims this process holds at once, in one Source or in several of the same
	// Table. 0 or 1 is one ordered reader, in one process at a time. With more, each claims rows with
	// FOR UPDATE SKIP LOCKED, in any number of processes and in no order.
	Workers int `yaml:"workers"`
	// Batch is the most rows that are read, claimed and settled together.
	Batch int `yaml:"batch"`
	// Margin is how much later than its place in the order a row usually commits at most. Later rows
	// are found by the sweep.
	Margin time.Duration `yaml:"margin"`
	// Sweep is the pause between two scans of the rows below the margin.
	Sweep time.Duration `yaml:"sweep"`
	// ClaimTimeout is how long, with several workers, rows stay claimed. Then their
	// transaction is rolled back, and they may be sent again.
	ClaimTimeout time.Duration `yaml:"claim_timeout"`

	// optional are columns that only a preset has named: the table may lack them.
	optional []string
	// orderByID: the configuration does not show whether the ids are in order.
	orderByID bool
}

// Columns maps the parts of a message to columns. Without a preset, only ID is required.
type Columns struct {
	// ID identifies a row: the primary key, or a column with a unique index. A uuid,
	// an integer or text.
	ID string `yaml:"id"`
	// Order is the column by which rows are read: a time or a number that grows. Ties are resolved by
	// ID. Default: ID alone. See Config.Margin for rows that commit out of order.
	Order []string `yaml:"order"`
	Key   string   `yaml:"key"`
	Topic string   `yaml:"topic"`
	// Payload is jsonb, json, text or bytea; NULL is an empty payload.
	Payload string `yaml:"payload"`
	// Headers is a json or jsonb object.
	Headers string `yaml:"headers"`
	// Tracing is text with a trace context as Java properties, as Debezium's
	// tracingspancontext: each becomes a header.
	Tracing string `yaml:"tracing"`
	// CreatedAt is a time. Default: the first column of Order that is a time.
	CreatedAt string `yaml:"created_at"`
	// ProcessedAt is NULL until the row is delivered, for Delivered: mark.
	ProcessedAt string `yaml:"processed_at"`
	// Status is text, an integer, a boolean or an enum, for Delivered: status.
	Status string `yaml:"status"`
	// Error gets the text of the last failure. With Delivered: mark or status it
	// is cleared when the row is delivered after all.
	Error string `yaml:"error"`
	// Attempts gets the number of attempts that failed.
	Attempts string `yaml:"attempts"`
}

// Delivered is the way to mark a delivered row.
type Delivered string

const (
	// Delete the row.
	Delete Delivered = "delete"
	// Mark it: the processed-at column is set to the current time.
	Mark Delivered = "mark"
	// SetStatus sets the status column to Status.Delivered.
	SetStatus Delivered = "status"
	// Archive moves it to another table.
	Archive Delivered = "archive"
)

// Status has the values of a status column.
type Status struct {
	// Pending are the values of rows to deliver. Default "pending".
	Pending []Value `yaml:"pending"`
	// Delivered is the value of a delivered row. Default "delivered".
	Delivered Value `yaml:"delivered"`
}

// Value is a value of a column, in a form that SQL parses. A file may have a number or a boolean.
type Value string

// UnmarshalText accepts any text.
func (v *Value) UnmarshalText(text []byte) error {
	*v = Value(text)
	return nil
}

// Defaults.
const (
	DefaultBatch        = 1000
	DefaultMargin       = time.Minute
	DefaultSweep        = time.Minute
	DefaultClaimTimeout = 30 * time.Second
)

// Upper limits of the fields.
const (
	maxWorkers = 64
	maxBatch   = 10_000
	maxMargin  = 24 * time.Hour
	maxHeaders = 64
	maxOrder   = 8
)

// SetDefaults fills in the unset fields, first from the preset. Validate reports an unknown preset.
func (c *Config) SetDefaults() {
	c.applyPreset()
	if c.Delivered == "" && c.Archive == "" {
		switch {
		case c.Columns.ProcessedAt != "":
			c.Delivered = Mark
		case c.Columns.Status != "":
			c.Delivered = SetStatus
		}
	} else if c.Delivered == "" {
		c.Delivered = Archive
	}
	if c.Delivered == SetStatus {
		if len(c.Status.Pending) == 0 {
			c.Status.Pending = []Value{"pending"}
		}
		c.Status.Delivered = cmp.Or(c.Status.Delivered, "delivered")
	}
	if len(c.Columns.Order) == 0 && c.Columns.ID != "" {
		c.Columns.Order = []string{c.Columns.ID}
		c.orderByID = true
	}
	if c.Topic == "" {
		if c.Columns.Topic != "" {
			c.Topic = ColumnTemplate(c.Columns.Topic)
		} else if id, err := SplitTable("table", c.Table); err == nil {
			c.Topic = LiteralTemplate(id[len(id)-1])
		}
	}
	if c.Key == "" && c.Columns.Key != "" {
		c.Key = ColumnTemplate(c.Columns.Key)
	}
	c.Batch = cmp.Or(c.Batch, DefaultBatch)
	c.Margin = cmp.Or(c.Margin, DefaultMargin)
	c.Sweep = cmp.Or(c.Sweep, DefaultSweep)
	c.ClaimTimeout = cmp.Or(c.ClaimTimeout, DefaultClaimTimeout)
}

// Prepare sets the defaults and validates, for a subscription of that name.
func (c *Config) Prepare(subscription string) error {
	if n := len(subscription); n == 0 || n > penstock.MaxSubscriptionBytes {
		return Field("subscription", "must have 1 to 128 bytes", "choose another name")
	}
	c.SetDefaults()
	return c.Validate()
}

// Validate returns a *penstock.FieldError for the first field that cannot be used. Call
// SetDefaults before. It does not read the database.
func (c *Config) Validate() error {
	if _, known := presets[c.Preset]; c.Preset != "" && !known {
		return Field("preset", fmt.Sprintf("is %q", c.Preset), "choose one of %s, or map the columns yourself", strings.Join(PresetNames(), ", "))
	}
	if _, err := SplitTable("table", c.Table); err != nil {
		return err
	}
	if err := c.validateColumns(); err != nil {
		return err
	}
	if err := c.validateDelivered(); err != nil {
		return err
	}
	for _, t := range c.Templates() {
		if _, err := ParseTemplate(t.Text); err != nil {
			return Field(t.Field, err.Error(), "write a column's name in braces, such as outbox.event.{aggregatetype}")
		}
	}
	if len(c.Headers) > maxHeaders {
		return Field("headers", fmt.Sprintf("are %d", len(c.Headers)), "map at most %d", maxHeaders)
	}
	switch {
	case c.Workers < 0 || c.Workers > maxWorkers:
		return Field("workers", fmt.Sprintf("is %d", c.Workers), "choose 1 for one ordered reader, or up to %d", maxWorkers)
	case c.Batch < 1 || c.Batch > maxBatch:
		return Field("batch", fmt.Sprintf("is %d", c.Batch), "choose 1 to %d rows", maxBatch)
	case c.Margin < 0 || c.Margin > maxMargin:
		return Field("margin", fmt.Sprintf("is %v", c.Margin), "choose a time up to %v: the longest transaction you usually have", maxMargin)
	case c.Sweep < 0 || c.Sweep > maxMargin:
		return Field("sweep", fmt.Sprintf("is %v", c.Sweep), "choose a time such as 1m")
	case c.ClaimTimeout < 0:
		return Field("claim_timeout", "is negative", "choose a time such as 30s")
	}
	return nil
}

func (c *Config) validateColumns() error {
	if c.Columns.ID == "" {
		return Field("columns.id", "is not set", "name the column of the primary key")
	}
	if len(c.Columns.Order) > maxOrder {
		return Field("columns.order", fmt.Sprintf("has %d columns", len(c.Columns.Order)), "name at most %d", maxOrder)
	}
	for i, name := range c.Columns.Order {
		if name == "" || slices.Contains(c.Columns.Order[:i], name) {
			return Field("columns.order", fmt.Sprintf("names %q twice or a column without a name", name), "name each column once")
		}
	}
	for _, n := range c.Columns.names() {
		if strings.IndexByte(n.column, 0) >= 0 || len(n.column) > 63 {
			return Field("columns."+n.field, fmt.Sprintf("is %q", n.column), "a column's name has at most 63 bytes")
		}
	}
	written := map[string]string{}
	for _, n := range []mapped{{"processed_at", c.Columns.ProcessedAt}, {"status", c.Columns.Status}, {"error", c.Columns.Error}, {"attempts", c.Columns.Attempts}} {
		if n.column == "" {
			continue
		}
		if other := written[n.column]; other != "" || n.column == c.Columns.ID || slices.Contains(c.Columns.Order, n.column) {
			return Field("columns."+n.field, fmt.Sprintf("is the column %q, which means something else too", n.column), "map a separate column: Penstock writes to it")
		}
		written[n.column] = n.field
	}
	return nil
}

func (c *Config) validateDelivered() error {
	if _, err := SplitTable("archive", c.Archive); err != nil && (c.Archive != "" || c.Delivered == Archive) {
		return err
	}
	switch c.Delivered {
	case "":
		return Field("delivered", "is not set", "choose the fate of a delivered row: %s, %s (columns.processed_at), %s (columns.status) or %s", Delete, Mark, SetStatus, Archive)
	case Delete:
	case Mark:
		if c.Columns.ProcessedAt == "" {
			return Field("columns.processed_at", "is not set", "name the column to mark, or choose another way in delivered")
		}
	case SetStatus:
		if c.Columns.Status == "" {
			return Field("columns.status", "is not set", "name the status column, or choose another way in delivered")
		}
		if slices.Contains(c.Status.Pending, c.Status.Delivered) {
			return Field("status.delivered", fmt.Sprintf("is %q, as pending rows have it", c.Status.Delivered), "choose a value that is not in status.pending")
		}
	case Archive:
		if c.Archive == c.Table {
			return Field("archive", "is the table itself", "name another table")
		}
	default:
		return Field("delivered", fmt.Sprintf("is %q", c.Delivered), "use %s, %s, %s or %s", Delete, Mark, SetStatus, Archive)
	}
	if c.Archive != "" && c.Delivered != Archive {
		return Field("archive", fmt.Sprintf("is set together with delivered: %s", c.Delivered), "remove one of the two")
	}
	return nil
}

// Ordered reports whether one reader keeps the order. Otherwise several readers claim rows.
func (c *Config) Ordered() bool { return c.Workers <= 1 }

// TableIdentifier is Table in parts, for quoting. It expects a valid config.
func (c *Config) TableIdentifier() pgx.Identifier {
	id, _ := SplitTable("table", c.Table)
	return id
}

// ArchiveIdentifier is Archive in parts, nil without one.
func (c *Config) ArchiveIdentifier() pgx.Identifier {
	id, _ := SplitTable("archive", c.Archive)
	return id
}

// OrderColumns are the columns of the total order in which rows are read: Order,
// and ID at the end.
func (c *Config) OrderColumns() []string {
	if slices.Contains(c.Columns.Order, c.Columns.ID) {
		return c.Columns.Order[:slices.Index(c.Columns.Order, c.Columns.ID)+1]
	}
	return append(slices.Clone(c.Columns.Order), c.Columns.ID)
}

// MessageColumns are the names of the columns from which the message is made, without those of an
// invalid template.
func (c *Config) MessageColumns() []string {
	cols := &c.Columns
	names := []string{cols.ID, cols.Key, cols.Topic, cols.Payload, cols.Headers, cols.Tracing, cols.CreatedAt}
	for _, text := range slices.AppendSeq([]string{c.Topic, c.Key, c.MessageID}, maps.Values(c.Headers)) {
		if t, err := ParseTemplate(text); err == nil {
			names = append(names, t.Columns()...)
		}
	}
	names = slices.DeleteFunc(names, func(s string) bool { return s == "" })
	slices.Sort(names)
	return slices.Compact(names)
}

// mapped is a column and the field of Columns that names it.
type mapped struct{ field, column string }

// names are the mapped columns, in the order of the fields.
func (c *Columns) names() (all []mapped) {
	for _, m := range []mapped{{"id", c.ID}, {"key", c.Key}, {"topic", c.Topic}, {"payload", c.Payload}, {"headers", c.Headers}, {"tracing", c.Tracing},
		{"created_at", c.CreatedAt}, {"processed_at", c.ProcessedAt}, {"status", c.Status}, {"error", c.Error}, {"attempts", c.Attempts}} {
		if m.column != "" {
			all = append(all, m)
		}
	}
	for _, name := range c.Order {
		all = append(all, mapped{"order", name})
	}
	return all
}

// NamedTemplate is a template and the field that has it.
type NamedTemplate struct{ Field, Text, Header string }

func (c *Config) Templates() []NamedTemplate {
	all := []NamedTemplate{{"topic", c.Topic, ""}, {"key", c.Key, ""}, {"message_id", c.MessageID, ""}}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		all = append(all, NamedTemplate{fmt.Sprintf("headers[%q]", name), c.Headers[name], name})
	}
	return all
}

// SplitTable cuts "schema.table" at its dot. A name that has a dot itself is
// written in double quotes, as in SQL.
func SplitTable(of, name string) (pgx.Identifier, error) {
	r := csv.NewReader(strings.NewReader(name))
	r.Comma = '.'
	id, err := r.Read()
	problem := fmt.Sprintf("is %q", name)
	switch {
	case name == "":
		problem = "is not set"
	case err != nil || strings.ContainsAny(name, "\x00\r\n") || slices.ContainsFunc(id, func(part string) bool { return part == "" || len(part) > 63 }):
	case len(id) > 2:
		problem = fmt.Sprintf("has %d parts", len(id))
	default:
		return id, nil
	}
	return nil, Field(of, problem, "write table or schema.table, a name with a dot in double quotes")
}

func Field(name, problem, hint string, args ...any) error {
	return &penstock.FieldError{Field: name, Problem: problem, Hint: fmt.Sprintf(hint, args...)}
}

// OrderByID reports whether the configuration leaves open if the ids are in order.
func (c *Config) OrderByID() bool { return c.orderByID }
