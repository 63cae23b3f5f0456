package adopted

import (
	"cmp"
	"maps"
	"slices"
)

// Preset is a table with well-known columns.
type Preset struct {
	Name string
	// About is one line for people.
	About  string
	Config Config
}

// presets by name. Columns under optional are left out if a table lacks them.
var presets = map[string]Preset{
	"dotnet": {
		About: "outbox_messages of .NET: id, type, content, occurred_on_utc, processed_on_utc, error; a delivered row is marked",
		Config: Config{
			Table: "outbox_messages",
			Columns: Columns{ID: "id", Order: []string{"occurred_on_utc"}, Topic: "type", Payload: "content",
				ProcessedAt: "processed_on_utc", Error: "error"},
			Delivered: Mark,
			optional:  []string{"error"},
		},
	},
	// https://debezium.io/documentation/reference/stable/transformations/outbox-event-router.html:
	// the topic is outbox.event. and the aggregate's type, the key its id, and the
	// event's id a header; tracingspancontext holds properties to pass on. The type
	// travels in the header that its documentation and its Quarkus extension use.
	"debezium": {
		About: "the table of Debezium's EventRouter: id, aggregatetype, aggregateid, type, payload, perhaps tracingspancontext; a delivered row is deleted",
		Config: Config{
			Table:     "outboxevent",
			Columns:   Columns{ID: "id", Payload: "payload", Tracing: "tracingspancontext"},
			Topic:     "outbox.event.{aggregatetype}",
			Key:       "{aggregateid}",
			MessageID: "{id}",
			Headers:   map[string]string{"id": "{id}", "eventType": "{type}"},
			Delivered: Delete,
			optional:  []string{"tracingspancontext"},
		},
	},
	"message": {
		About: "outbox(ts, id, message): read by ts; a delivered row is deleted",
		Config: Config{
			Table:     "outbox",
			Columns:   Columns{ID: "id", Order: []string{"ts"}, Payload: "message"},
			Delivered: Delete,
		},
	},
	"events": {
		About: "events(id, ts, data): read by ts; a delivered row is deleted",
		Config: Config{
			Table:     "events",
			Columns:   Columns{ID: "id", Order: []string{"ts"}, Payload: "data"},
			Delivered: Delete,
		},
	},
}

// PresetNames are the presets' names, sorted.
func PresetNames() []string { return slices.Sorted(maps.Keys(presets)) }

// Presets are all presets, by name.
func Presets() []Preset {
	var all []Preset
	for _, name := range PresetNames() {
		p := presets[name]
		p.Name = name
		p.Config.Preset = name
		p.Config.Headers = maps.Clone(p.Config.Headers)
		all = append(all, p)
	}
	return all
}

// applyPreset fills in the unset fields.
func (c *Config) applyPreset() {
	p, known := presets[c.Preset]
	if !known {
		return
	}
	from := &p.Config
	c.Table = cmp.Or(c.Table, from.Table)
	for _, f := range []struct{ to, from *string }{
		{&c.Columns.ID, &from.Columns.ID}, {&c.Columns.Payload, &from.Columns.Payload}, {&c.Columns.Headers, &from.Columns.Headers},
		{&c.Columns.CreatedAt, &from.Columns.CreatedAt}, {&c.Columns.Tracing, &from.Columns.Tracing},
		{&c.Columns.Error, &from.Columns.Error}, {&c.MessageID, &from.MessageID},
	} {
		if *f.to == "" && *f.from != "" {
			*f.to = *f.from
			if slices.Contains(from.optional, *f.from) && !slices.Contains(c.optional, *f.from) {
				c.optional = append(c.optional, *f.from)
			}
		}
	}
	if c.Topic == "" && c.Columns.Topic == "" {
		c.Topic, c.Columns.Topic = from.Topic, from.Columns.Topic
	}
	if c.Key == "" && c.Columns.Key == "" {
		c.Key, c.Columns.Key = from.Key, from.Columns.Key
	}
	if len(c.Columns.Order) == 0 {
		c.Columns.Order = slices.Clone(from.Columns.Order)
	}
	if c.Headers == nil {
		c.Headers = maps.Clone(from.Headers)
	}
	if c.Delivered == "" && c.Archive == "" && c.Columns.Status == "" && c.Columns.ProcessedAt == "" {
		c.Delivered, c.Columns.ProcessedAt = from.Delivered, from.Columns.ProcessedAt
	}
}
