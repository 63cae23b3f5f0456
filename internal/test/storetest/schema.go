package storetest

import (
	"errors"
	"slices"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var schemaErrors = []error{penstock.ErrNotMigrated, penstock.ErrOlderSchema, penstock.ErrNewerSchema, penstock.ErrBrokenSchema}

// wantSchema fails where a store that is opened now says anything else of the tables, or another next step.
func (e *env) wantSchema(hint string, migrates bool, want ...error) {
	s := e.Another(e)
	_, checked := s.CheckSchema(e.ctx)
	_, subscribed := s.Subscribe(e.ctx, e.request(driver.Subscribe{}))
	_, status := s.Status(e.ctx)
	said := map[string]error{"CheckSchema": checked, "CreateOutbox": s.CreateOutbox(e.ctx, "new"), "Subscribe": subscribed, "Status": status, "Maintain": s.Maintain(e.ctx, outbox)}
	if queues, ok := s.(driver.QueueStore); ok {
		said["CreateQueue"] = queues.CreateQueue(e.ctx, "new", "")
	}
	if !migrates {
		said["Migrate"] = s.Migrate(e.ctx)
	}
	for what, err := range said {
		for _, kind := range schemaErrors {
			suite.Equal(e, errors.Is(err, kind), slices.Contains(want, kind), "%s: %v is %v", what, err, kind)
		}
		hinted, _ := errors.AsType[*penstock.HintError](err)
		if _, typed := errors.AsType[*penstock.SchemaError](err); !typed || hinted == nil || !strings.Contains(hinted.Hint, hint) {
			e.Errorf("%s: got %v, want a SchemaError with the next step %q", what, err, hint)
		}
	}
}

func outboxSchemaOfAnotherVersion(e *env) {
	version := suite.Get(e.Store.SchemaVersion(e.ctx)).Must(e, "SchemaVersion")
	e.SetVersion(e, version-1)
	e.wantSchema("migrate", true, // by the program's migrate, or anew, where nothing leads on from the version before
		penstock.ErrOlderSchema, penstock.ErrNotMigrated)
	e.SetVersion(e, version+1)
	e.wantSchema("newer penstock", false, penstock.ErrNewerSchema)
	e.SetVersion(e, version)
	e.Must(e.Another(e).CreateOutbox(e.ctx, "new"), "CreateOutbox on the version that it was")
}

func outboxSchemaThatIsNotWhole(e *env) {
	e.Spoil(e)
	e.wantSchema("restore it from a backup", false, penstock.ErrBrokenSchema)
}
