package doctor

import (
	"context"
	"errors"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
)

// cut is a store whose examination ends early.
type cut struct {
	driver.Store
	doctor.Examiner
	found []doctor.Finding
}

var errTooSlow = errors.New("canceling statement due to statement timeout")

func (c cut) Examine(context.Context, doctor.Options) (doctor.Examined, error) {
	return doctor.Examined{Findings: c.found}, errTooSlow
}

// Findings from before a failed statement are shown, with a warning that the rest was not looked at. Without anything it is an error.
func TestFindingsSurviveAFailure(t *testing.T) {
	late := doctor.Finding{Check: doctor.CheckClock, Severity: doctor.Critical, Found: "the clocks differ"}
	found, err := Findings(&cli.App{}, cut{found: []doctor.Finding{late}})(t.Context())
	if err != nil || len(found) != 2 || found[0].Check != doctor.CheckClock || found[1].Severity != doctor.Warning || found[1].Found != errTooSlow.Error() {
		t.Errorf("found %+v, %v", found, err)
	}
	if found, err = Findings(&cli.App{}, cut{})(t.Context()); err != errTooSlow {
		t.Errorf("without anything: %+v, %v", found, err)
	}
}
