package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
)

// A password that is not escaped as it should be is not taken for a host or a database, which errors show.
func TestOpenTellsNoPassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://u:se@cret@127.0.0.1:1/x", "postgres://u:12/cret@127.0.0.1:1/x", "postgres://u:se/cret@127.0.0.1:1/x", "postgres://u:%zzcret@127.0.0.1:1/x"} {
		_, err := postgres.Open(t.Context(), url, postgres.Options{})
		field, ok := errors.AsType[*penstock.FieldError](err)
		if !ok || !strings.Contains(field.Hint, "%XX") || strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
