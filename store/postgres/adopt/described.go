package adopt

import "github.com/penstock/penstock/internal/adopted"

// How a table is described is the same for every store that adopts tables.
type (
	// Config describes a table that Penstock did not create, and the meaning of its columns. The zero
	// value of a field means its default, or the preset's: see SetDefaults.
	Config = adopted.Config
	// Columns maps the parts of a message to the names of columns. Only ID is needed, if
	// there is no preset.
	Columns = adopted.Columns
	// Delivered is the way to mark a delivered row.
	Delivered = adopted.Delivered
	// Status has the values of a status column.
	Status = adopted.Status
	// Value is one of a column, as SQL reads it.
	Value = adopted.Value
)

// The ways to mark a delivered row.
const (
	Delete    = adopted.Delete
	Mark      = adopted.Mark
	SetStatus = adopted.SetStatus
	Archive   = adopted.Archive
)
