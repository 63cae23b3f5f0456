package adopted_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/adopted"
)

func TestPresetsAreValid(t *testing.T) {
	for _, name := range adopted.PresetNames() {
		c := adopted.Config{Preset: name}
		c.SetDefaults()
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		again := c
		again.SetDefaults()
		if err := again.Validate(); err != nil {
			t.Errorf("%s, defaults set twice: %v", name, err)
		}
	}
}

func TestWhatIsSetGoesBeforeThePreset(t *testing.T) {
	c := adopted.Config{Preset: "dotnet", Table: "shop.messages", Columns: adopted.Columns{Key: "aggregate"}, Archive: "shop.sent"}
	c.SetDefaults()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if c.Delivered != adopted.Archive || c.Columns.ProcessedAt != "" || c.Key != "{aggregate}" || c.Topic != "{type}" {
		t.Errorf("got %+v", c)
	}
	if got := c.TableIdentifier().Sanitize(); got != `"shop"."messages"` {
		t.Errorf("the table is %s", got)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for _, c := range []struct {
		field  string
		config adopted.Config
	}{
		{"preset", adopted.Config{Preset: "java"}},
		{"table", adopted.Config{}},
		{"table", adopted.Config{Preset: "message", Table: "a.b.c"}},
		{"table", adopted.Config{Preset: "message", Table: `"a`}},
		{"columns.id", adopted.Config{Table: "t", Delivered: adopted.Delete}},
		{"columns.order", adopted.Config{Table: "t", Columns: adopted.Columns{ID: "id", Order: []string{"a", "a"}}, Delivered: adopted.Delete}},
		{"columns.error", adopted.Config{Table: "t", Columns: adopted.Columns{ID: "id", Error: "id"}, Delivered: adopted.Delete}},
		{"columns.attempts", adopted.Config{Table: "t", Columns: adopted.Columns{ID: "id", Error: "e", Attempts: "e"}, Delivered: adopted.Delete}},
		{"delivered", adopted.Config{Table: "t", Columns: adopted.Columns{ID: "id"}}},
		{"delivered", adopted.Config{Table: "t", Columns: adopted.Columns{ID: "id"}, Delivered: "drop"}},
		{"columns.processed_at", adopted.Config{Table: "t", Columns: adopted.Columns{ID: "id"}, Delivered: adopted.Mark}},
		{"columns.status", adopted.Config{Table: "t", Columns: adopted.Columns{ID: "id"}, Delivered: adopted.SetStatus}},
		{"status.delivered", adopted.Config{Table: "t", Columns: adopted.Columns{ID: "id", Status: "s"}, Status: adopted.Status{Delivered: "pending"}}},
		{"archive", adopted.Config{Table: "t", Columns: adopted.Columns{ID: "id"}, Delivered: adopted.Archive}},
		{"archive", adopted.Config{Table: "t", Columns: adopted.Columns{ID: "id"}, Archive: "t"}},
		{"archive", adopted.Config{Preset: "message", Archive: "t", Delivered: adopted.Delete}},
		{"topic", adopted.Config{Preset: "message", Topic: "a.{b"}},
		{"key", adopted.Config{Preset: "message", Key: "a}"}},
		{"headers[\"h\"]", adopted.Config{Preset: "message", Headers: map[string]string{"h": "{}"}}},
		{"workers", adopted.Config{Preset: "message", Workers: 65}},
		{"batch", adopted.Config{Preset: "message", Batch: -1}},
		{"margin", adopted.Config{Preset: "message", Margin: -1}},
		{"claim_timeout", adopted.Config{Preset: "message", ClaimTimeout: -1}},
	} {
		c.config.SetDefaults()
		err := c.config.Validate()
		var bad *penstock.FieldError
		if !errors.As(err, &bad) || bad.Field != c.field || bad.Hint == "" {
			t.Errorf("want a complaint about %s, got %v", c.field, err)
		}
	}
}

func TestTableWithDot(t *testing.T) {
	c := adopted.Config{Preset: "message", Table: `"my.schema".Out`}
	c.SetDefaults()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.TableIdentifier(), "|"); got != "my.schema|Out" {
		t.Errorf("got %s", got)
	}
}

func TestMessageColumns(t *testing.T) {
	for topic, want := range map[string]string{"": "id x", "a.{b}": "b id x", "{{y}}{c}{b}}}": "b c id x", "{{": "id x", "{b": "id x"} {
		c := adopted.Config{Topic: topic, Columns: adopted.Columns{ID: "id", Payload: "x", ProcessedAt: "p"}, Headers: map[string]string{"h": "{x}"}}
		if got := strings.Join(c.MessageColumns(), " "); got != want {
			t.Errorf("with the topic %q they are %q, want %q", topic, got, want)
		}
	}
}
