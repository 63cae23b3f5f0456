package tables

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/penstock/penstock"
)

// Reported is what a report makes of the one before, see driver.Reporter. Before is empty if there was none.
func Reported(before, report []byte) ([]byte, error) {
	made := report
	if !json.Valid(report) { // none at all would take back what was said before
		return nil, &penstock.FieldError{Field: "report", Problem: "is not JSON", Hint: "write a number, a text in quotes, or an object"}
	}
	kept, added := members(before), members(report)
	steps, adds := kept[penstock.MemberSteps], added[penstock.MemberSteps]
	switch {
	case adds != nil:
		together, more := members(steps), members(adds)
		if more == nil {
			return nil, &penstock.FieldError{Field: "report", Problem: "has steps that are not an object", Hint: `write {"penstock-steps": {"charge": {"receipt": 7}}}`}
		}
		for name := range more {
			if together[name] != nil {
				return nil, &penstock.FieldError{Field: "report", Problem: fmt.Sprintf("has the step %q, which has returned already", name), Hint: "give each step of a job a different name; the next attempt has the result"}
			}
		}
		if together == nil {
			together = map[string]json.RawMessage{}
		}
		maps.Copy(together, more)
		if kept == nil {
			kept = map[string]json.RawMessage{}
		}
		maps.Copy(kept, added)
		kept[penstock.MemberSteps], _ = json.Marshal(together)
		made, _ = json.Marshal(kept)
	case steps != nil:
		if added == nil {
			return nil, &penstock.FieldError{Field: "report", Problem: "is not an object, and the job has steps", Hint: `write an object, for example {"rows": 5}`}
		}
		added[penstock.MemberSteps] = steps
		made, _ = json.Marshal(added)
	}
	if len(made) > penstock.MaxReportBytes {
		return nil, &penstock.FieldError{Field: "report", Problem: fmt.Sprintf("has %d bytes with the results of the steps, the limit is %d", len(made), penstock.MaxReportBytes), Hint: "store a large result elsewhere and return a reference"}
	}
	return made, nil
}

// members are those of an object; nil of any other value.
func members(text []byte) (found map[string]json.RawMessage) {
	if json.Unmarshal(text, &found) != nil {
		return nil
	}
	return found
}
