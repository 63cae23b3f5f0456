package tables

import (
	"context"
	"time"
)

// Alteration brings a table that is there and lacks a column up to date: "create table if not exists" leaves it as it is.
type Alteration struct {
	Table, Column string
	Statements    []string // the last one makes the column
}

// Alter adds a column to the tables that lack it. Other processes may do the same at the same time: altered are errors that say so, or that
// part of it is done.
func Alter(ctx context.Context, all []Alteration, lacks func(Alteration) (bool, error), do func(statement string) error, altered func(error) bool) error {
	for _, a := range all {
		for {
			old, err := lacks(a)
			if err != nil {
				return err
			}
			if !old {
				break
			}
			for _, statement := range a.Statements {
				if err := do(statement); err != nil && !altered(err) {
					return err
				}
			}
			if err := Pause(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// Pause is how long another process that defines the same is waited for.
func Pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(20 * time.Millisecond):
		return nil
	}
}
