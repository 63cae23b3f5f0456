package penstock

import (
	"fmt"
	"math"
	"time"
)

// DefaultGroup is the name of the policy of all groups that have no other.
const DefaultGroup = "*"

// Limits of the policies of groups.
const (
	// MaxGroupWeight is the largest GroupPolicy.Weight.
	MaxGroupWeight = 100
	// MaxRateJobs is the largest Rate.Jobs and Rate.Burst.
	MaxRateJobs = 1_000_000
	// MaxRatePer is the longest Rate.Per.
	MaxRatePer = 366 * 24 * time.Hour
	// MaxReasonBytes is the longest reason of a hold.
	MaxReasonBytes = 1024
)

// Rate limits how many jobs start, or how many messages a relay sends: at most Jobs in each Per, evenly spread. For example, with
// 60 a minute one starts each second. The zero Rate limits nothing.
type Rate struct {
	// Jobs is 1 to MaxRateJobs.
	Jobs int `json:"jobs" yaml:"rate"`
	// Per is a millisecond to MaxRatePer, and at least a microsecond for each of Jobs.
	Per time.Duration `json:"per_ns" yaml:"per"`
	// Burst is how many jobs may start at once after a pause, 1 to MaxRateJobs. 0 means 1. So in any Per at most
	// Jobs + Burst - 1 jobs start.
	Burst int `json:"burst,omitempty" yaml:"burst"`
}

// Validate returns a *FieldError for the first field that no store accepts.
func (r Rate) Validate() error {
	switch {
	case r == (Rate{}):
		return nil
	case r.Jobs < 1 || r.Jobs > MaxRateJobs:
		return &FieldError{Field: "rate", Problem: fmt.Sprintf("is %d", r.Jobs), Hint: fmt.Sprintf("use 1 to %d, or no rate at all", MaxRateJobs)}
	case r.Per < time.Millisecond || r.Per > MaxRatePer:
		return &FieldError{Field: "per", Problem: fmt.Sprintf("is %s", r.Per), Hint: fmt.Sprintf("use 1ms to %s, for example 1s", MaxRatePer)}
	case r.Per/time.Duration(r.Jobs) < time.Microsecond:
		return &FieldError{Field: "rate", Problem: fmt.Sprintf("is %d per %s", r.Jobs, r.Per), Hint: "use at most one a microsecond"}
	case r.Burst < 0 || r.Burst > MaxRateJobs:
		return &FieldError{Field: "burst", Problem: fmt.Sprintf("is %d", r.Burst), Hint: fmt.Sprintf("use 1 to %d; 0 means 1", MaxRateJobs)}
	}
	return nil
}

// GroupPolicy limits the jobs of one group of a queue. A field that is zero sets nothing. A limit spends no attempt of a job: the job waits.
type GroupPolicy struct {
	// Group is the group, or DefaultGroup for each group that has no other policy. The default counts for each group separately.
	Group string `json:"group"`
	// MaxRunning is how many jobs of the group may be claimed at a time, in all processes together; 0 means no limit.
	MaxRunning int `json:"max_running,omitempty"`
	// Rate is how many jobs of the group may start.
	Rate Rate `json:"rate,omitzero"`
	// Weight is the group's share of a worker that serves several groups, 1 to MaxGroupWeight. For example, a group with weight 2 gets
	// twice the jobs of one with 1, while both have some. 0 means 1.
	Weight int `json:"weight,omitempty"`
}

// Validate returns a *FieldError for the first field that no store accepts.
func (p GroupPolicy) Validate() error {
	if err := ValidateText("group", p.Group, MaxGroupBytes); err != nil {
		return err
	}
	switch {
	case p.MaxRunning < 0 || p.MaxRunning > math.MaxInt32:
		return &FieldError{Field: "max running", Problem: fmt.Sprintf("is %d", p.MaxRunning), Hint: fmt.Sprintf("use 1 to %d, 0 for no limit, or hold the group", math.MaxInt32)}
	case p.Weight < 0 || p.Weight > MaxGroupWeight:
		return &FieldError{Field: "weight", Problem: fmt.Sprintf("is %d", p.Weight), Hint: fmt.Sprintf("use 1 to %d; 0 means 1", MaxGroupWeight)}
	}
	return p.Rate.Validate()
}

// ValidateHold returns a *FieldError for a hold of a group that no store accepts.
func ValidateHold(group string, d time.Duration, reason string) error {
	if group == DefaultGroup {
		return &FieldError{Field: "group", Problem: "is *, which stands for all groups", Hint: "hold one group, or pause the queue"}
	}
	if d < 0 {
		return &FieldError{Field: "for", Problem: fmt.Sprintf("is %s", d), Hint: "use a time from now, or 0 to release the group"}
	}
	if err := ValidateText("group", group, MaxGroupBytes); err != nil {
		return err
	}
	return ValidateText("reason", reason, MaxReasonBytes)
}
