package config

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/redact"
	"github.com/penstock/penstock/sink/format"
)

func TestParseFormat(t *testing.T) {
	f, err := ParseFormat("cloudevents?mode=structured&extensions.tenant={header.tenant}&sequence=true&type=shop.{topic}", "orders")
	if err != nil {
		t.Fatal(err)
	}
	if f.Kind != format.CloudEvents || f.Mode != format.Structured || f.Source != "/penstock/orders" || f.Extensions["tenant"] != "{header.tenant}" || f.Extensions["partitionkey"] == "" ||
		!f.Sequence || f.Type != "shop.{topic}" {
		t.Errorf("got %+v", f)
	}
	for _, kind := range []string{"raw", "debezium", "debezium?headers.tenant={header.tenant}"} {
		if _, err := ParseFormat(kind, "orders"); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	for text, want := range map[string]string{
		"":                                  "names no kind",
		"avro":                              "write raw, cloudevents or debezium",
		"raw?mode=binary":                   "mode is set, but kind is raw",
		"cloudevents?modus=binary":          "modus is not a parameter of a format: use one of datacontenttype, dataschema, extensions.NAME, headers.NAME, mode",
		"cloudevents?kind=raw":              "kind is not a parameter",
		"cloudevents?mode":                  "",
		"cloudevents?mode=a&mode=b":         "given twice",
		"cloudevents?sequence=yes":          "write true or false",
		"cloudevents?type.x=y":              "type.x is not a parameter",
		"cloudevents?extensions=y":          "extensions is not a parameter",
		"cloudevents?extensions.Tenant=y":   "extensions",
		"cloudevents?mode=%zz":              "parameters that cannot be read",
		"debezium?headers.id={header.name}": "headers",
	} {
		_, err := ParseFormat(text, "orders")
		if want == "" {
			if err != nil {
				t.Errorf("%q: %v", text, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
}

// Words that only resemble those of secrets are shown.
func TestPartitionKeyIsNoSecret(t *testing.T) {
	if redact.Secret("partitionkey") || !redact.Secret("nkey") || !redact.Secret("my_nkey") {
		t.Error("partitionkey passes for a secret, or an nkey does not")
	}
}
