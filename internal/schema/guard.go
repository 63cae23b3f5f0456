package schema

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"

	"github.com/penstock/penstock"
)

// Guard lets a store on plain tables be used only while these are the tables of this program.
type Guard struct {
	Of      func() Of
	Version func(ctx context.Context) (int64, error)  // of the tables, or 0 if there are none
	Lacks   func(ctx context.Context) (string, error) // the parts that tables of this version lack
	Unlike  func(err error) bool                      // whether a statement failed because the tables are of another version
	Closed  atomic.Bool                               // whether the store is closed
	fits    atomic.Bool                               // whether the last Check found no difference
}

// Ready checks once that the tables can be used.
func (g *Guard) Ready(ctx context.Context) error {
	if g.Closed.Load() {
		return penstock.ErrClosed
	}
	if g.fits.Load() {
		return ctx.Err()
	}
	err := g.Check(ctx)
	g.fits.Store(err == nil)
	return err
}

// Check compares the tables with this program's. If they differ, the error is a *penstock.SchemaError.
func (g *Guard) Check(ctx context.Context) error {
	have, err := g.Version(ctx)
	if err != nil {
		return err
	}
	of := g.Of()
	if have == of.Want {
		if lacks, err := g.Lacks(ctx); err != nil || lacks != "" {
			return cmp.Or(err, of.Broken(have, lacks))
		}
	}
	return of.Check(have)
}

// Newer returns the error of a statement, or, if it was refused because a newer program has migrated the tables since they were checked, the
// error that says so.
func (g *Guard) Newer(ctx context.Context, err error) error {
	if err != nil && g.Unlike(err) {
		if have, failed := g.Version(ctx); failed == nil && have > g.Of().Want {
			g.Forget()
			return fmt.Errorf("%w: %w", g.Of().Check(have), err)
		}
	}
	return err
}

// Forget has the next Ready check again.
func (g *Guard) Forget() { g.fits.Store(false) }
