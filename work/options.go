package work

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/settings"
)

// SetDefaults sets the fields that are zero.
func (o *Options) SetDefaults() {
	settings.Defaults(o)
	o.PollMax = cmp.Or(o.PollMax, max(50*time.Millisecond, o.PollMin))
	if o.Worker == "" {
		host, _ := os.Hostname() // without a host name, the pid must suffice
		o.Worker = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	if o.Version == "" {
		o.Version = programVersion()
	}
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
}

// Validate returns a *FieldError for the first field that Run cannot work with.
// Call SetDefaults before.
func (o *Options) Validate() error {
	if err := settings.Check(o); err != nil {
		return err
	}
	if o.Lease < time.Second { // a pause of the machine or the network is often longer, and then jobs run twice
		return &penstock.FieldError{Field: "Lease", Problem: fmt.Sprintf("is %s", o.Lease), Hint: "use at least a second, such as 30*time.Second: a number alone counts nanoseconds"}
	}
	if o.PollMax < o.PollMin {
		return &penstock.FieldError{Field: "PollMax", Problem: "is less than PollMin", Hint: "raise it or lower PollMin"}
	}
	for i, m := range o.Middleware {
		if m == nil {
			return &penstock.FieldError{Field: fmt.Sprintf("Middleware[%d]", i), Problem: "is nil", Hint: "leave it out"}
		}
	}
	if o.AllGroups && len(o.Groups) > 0 || (o.AllGroups || len(o.Groups) > 0) && o.Group != "" {
		return &penstock.FieldError{Field: "Group", Problem: "is given in several ways", Hint: "set one of Group, Groups and AllGroups"}
	}
	for i, group := range o.Groups {
		if err := validGroup(fmt.Sprintf("Groups[%d]", i), group); err != nil {
			return err
		}
	}
	return validGroup("Group", o.Group)
}

// validGroup applies the rule of a claim to an option.
func validGroup(option, group string) error {
	err := (&driver.Claim{Group: group, Jobs: 1, Lease: 1}).Validate()
	if field := (*penstock.FieldError)(nil); errors.As(err, &field) {
		field.Field = option
	}
	return err
}

type noObserver struct{}

func (noObserver) Claimed(int)                            {}
func (noObserver) Started(penstock.Job, time.Time)        {}
func (noObserver) Ended(penstock.Job, End, time.Duration) {}
