// Package suite has the common parts of the stores' suites. storetest and queuetest list their cases and define a store; suite
// chooses among the cases and runs them.
package suite

import (
	"path"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/test/testseed"
)

// Case is one promise.
type Case struct {
	Name  string
	Long  bool // in the long form of random tests only
	Needs any  // features, a struct of booleans, or nil
	Run   func(t *testing.T)
}

// NameOf is the name of a case by its function's, which begins with the group's.
func NameOf(group string, run any) string {
	function := runtime.FuncForPC(reflect.ValueOf(run).Pointer()).Name()
	_, function, _ = strings.Cut(path.Base(function), ".")
	name, ok := strings.CutPrefix(function, strings.ToLower(group[:1])+group[1:])
	if !ok {
		panic("the case " + function + " does not begin with its group, " + group)
	}
	return name
}

// Group is the cases of one subject.
type Group struct {
	Name  string
	Cases []Case
}

// Choice says which of the cases run, and the store's abilities.
type Choice struct {
	Groups          []string // if given, the only ones
	Only, Elsewhere Cases    // see the harnesses
	Features        any      // of the type of Case.Needs
}

// Cases are groups ("Order") and single cases ("Order/FIFO") of a suite: those that a
// condition can change, where a store passes all of them without it.
type Cases []string

// Run runs the cases that are chosen. Each is parallel to all others.
func Run(t *testing.T, choice Choice, groups []Group) {
	choice.Only.check(t, groups)
	choice.Elsewhere.check(t, groups)
	for _, g := range groups {
		if len(choice.Groups) > 0 && !slices.Contains(choice.Groups, g.Name) {
			continue
		}
		t.Run(g.Name, func(t *testing.T) {
			for _, c := range g.Cases {
				shortly := !c.Long && (len(choice.Only) == 0 || choice.Only.has(g.Name, c.Name)) && !choice.Elsewhere.has(g.Name, c.Name)
				if !shortly && !testseed.Long() {
					continue
				}
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel()
					if what := missing(c.Needs, choice.Features); what != "" {
						t.Skipf("the store does not declare the feature %s", what)
					}
					c.Run(t)
				})
			}
		})
	}
}

// missing names the first feature that is needed and that the store lacks.
func missing(needs, have any) string {
	if needs == nil {
		return ""
	}
	asks, has := reflect.ValueOf(needs), reflect.ValueOf(have)
	for i := range asks.NumField() {
		if asks.Field(i).Bool() && !has.Field(i).Bool() {
			return asks.Type().Field(i).Name
		}
	}
	return ""
}

func (c Cases) has(group, name string) bool {
	return slices.Contains(c, group) || slices.Contains(c, group+"/"+name)
}

// check fails the test if there is no such group or case.
func (c Cases) check(t *testing.T, groups []Group) {
	t.Helper()
	for _, want := range c {
		in, name, single := strings.Cut(want, "/")
		if !slices.ContainsFunc(groups, func(g Group) bool {
			return g.Name == in && (!single || slices.ContainsFunc(g.Cases, func(c Case) bool { return c.Name == name }))
		}) {
			t.Fatalf("the suite has no %q, which Only or Elsewhere of the harness names", want)
		}
	}
}
