package doctor

import (
	"errors"

	"github.com/penstock/penstock"
)

// BadSchema is the finding of a *penstock.SchemaError.
func BadSchema(err error) Finding {
	f := Finding{Check: CheckSchema, Severity: Critical, Found: err.Error(), Why: "this program works only with the tables of its version"}
	if hint, ok := errors.AsType[*penstock.HintError](err); ok {
		f.Found, f.Next = hint.Err.Error(), hint.Hint
	}
	return f
}
