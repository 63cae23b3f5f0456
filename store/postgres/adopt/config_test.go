package adopt_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres/adopt"
)

func TestPresetsAreValid(t *testing.T) {
	for _, name := range adopt.PresetNames() {
		c := adopt.Config{Preset: name}
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
	c := adopt.Config{Preset: "dotnet", Table: "shop.messages", Columns: adopt.Columns{Key: "aggregate"}, Archive: "shop.sent"}
	c.SetDefaults()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if c.Delivered != adopt.Archive || c.Columns.ProcessedAt != "" || c.Key != "{aggregate}" || c.Topic != "{type}" {
		t.Errorf("got %+v", c)
	}
	if got := c.TableIdentifier().Sanitize(); got != `"shop"."messages"` {
		t.Errorf("the table is %s", got)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for _, c := range []struct {
		field  string
		config adopt.Config
	}{
		{"preset", adopt.Config{Preset: "java"}},
		{"table", adopt.Config{}},
		{"table", adopt.Config{Preset: "message", Table: "a.b.c"}},
		{"table", adopt.Config{Preset: "message", Table: `"a`}},
		{"columns.id", adopt.Config{Table: "t", Delivered: adopt.Delete}},
		{"columns.order", adopt.Config{Table: "t", Columns: adopt.Columns{ID: "id", Order: []string{"a", "a"}}, Delivered: adopt.Delete}},
		{"columns.error", adopt.Config{Table: "t", Columns: adopt.Columns{ID: "id", Error: "id"}, Delivered: adopt.Delete}},
		{"columns.attempts", adopt.Config{Table: "t", Columns: adopt.Columns{ID: "id", Error: "e", Attempts: "e"}, Delivered: adopt.Delete}},
		{"delivered", adopt.Config{Table: "t", Columns: adopt.Columns{ID: "id"}}},
		{"delivered", adopt.Config{Table: "t", Columns: adopt.Columns{ID: "id"}, Delivered: "drop"}},
		{"columns.processed_at", adopt.Config{Table: "t", Columns: adopt.Columns{ID: "id"}, Delivered: adopt.Mark}},
		{"columns.status", adopt.Config{Table: "t", Columns: adopt.Columns{ID: "id"}, Delivered: adopt.SetStatus}},
		{"status.delivered", adopt.Config{Table: "t", Columns: adopt.Columns{ID: "id", Status: "s"}, Status: adopt.Status{Delivered: "pending"}}},
		{"archive", adopt.Config{Table: "t", Columns: adopt.Columns{ID: "id"}, Delivered: adopt.Archive}},
		{"archive", adopt.Config{Table: "t", Columns: adopt.Columns{ID: "id"}, Archive: "t"}},
		{"archive", adopt.Config{Preset: "message", Archive: "t", Delivered: adopt.Delete}},
		{"topic", adopt.Config{Preset: "message", Topic: "a.{b"}},
		{"key", adopt.Config{Preset: "message", Key: "a}"}},
		{"headers[\"h\"]", adopt.Config{Preset: "message", Headers: map[string]string{"h": "{}"}}},
		{"workers", adopt.Config{Preset: "message", Workers: 65}},
		{"batch", adopt.Config{Preset: "message", Batch: -1}},
		{"margin", adopt.Config{Preset: "message", Margin: -1}},
		{"claim_timeout", adopt.Config{Preset: "message", ClaimTimeout: -1}},
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
	c := adopt.Config{Preset: "message", Table: `"my.schema".Out`}
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
		c := adopt.Config{Topic: topic, Columns: adopt.Columns{ID: "id", Payload: "x", ProcessedAt: "p"}, Headers: map[string]string{"h": "{x}"}}
		if got := strings.Join(c.MessageColumns(), " "); got != want {
			t.Errorf("with the topic %q they are %q, want %q", topic, got, want)
		}
	}
}
