package sqlite_test

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/store/sqlite"
)

// What runs for every message that is received looks up what it needs: neither what
// was received nor what is held is passed over.
func TestInboxStatementsUseIndexes(t *testing.T) {
	t.Parallel()
	_, _, app := newFile(t, sqlite.Options{})
	for name, statement := range sqlite.InboxStatements() {
		for _, step := range explain(t, app, name, statement) {
			if strings.HasPrefix(step, "SCAN penstock_") || strings.HasSuffix(step, "(inbox_id=?)") || strings.Contains(step, "AUTOMATIC") {
				t.Errorf("%s goes through a whole inbox: %s", name, step)
			}
		}
	}
}
