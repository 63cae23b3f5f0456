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

// Case is one promise of a suite whose tests get an E, which has the database. F are features of a store, a struct of booleans.
type Case[E, F any] struct {
	Name  string
	Run   func(e E)
	Needs F
	Long  bool // in the long form of random tests only
	Other bool // its database is made in the suite's other way
}

// Named are cases that have the names of their functions, without the group's: Window is dedupWindow of the group Dedup.
func Named[E, F any](group string, runs ...func(e E)) (cases []Case[E, F]) {
	for _, run := range runs {
		cases = append(cases, Case[E, F]{Name: nameOf(group, run), Run: run})
	}
	return cases
}

// Needing are cases for stores with these features.
func Needing[E, F any](features F, cases []Case[E, F]) []Case[E, F] {
	for i := range cases {
		cases[i].Needs = features
	}
	return cases
}

func nameOf(group string, run any) string {
	function := runtime.FuncForPC(reflect.ValueOf(run).Pointer()).Name()
	_, function, _ = strings.Cut(path.Base(function), ".")
	name, ok := strings.CutPrefix(function, strings.ToLower(group[:1])+group[1:])
	if !ok {
		panic("the case " + function + " does not begin with its group, " + group)
	}
	return name
}

// Group is the cases of one subject.
type Group[E, F any] struct {
	Name  string
	Cases []Case[E, F]
}

// Choice has the cases that run, and the store's abilities.
type Choice struct {
	Groups          []string // if given, the only ones
	Only, Elsewhere Cases    // see the harnesses
	Features        any      // an F
}

// Cases are groups ("Order") and single cases ("Order/FIFO") of a suite: those that a
// condition can change, where a store passes all of them without it.
type Cases []string

// Run runs the cases that are chosen. open makes the E of each. All are parallel.
func Run[E, F any](t *testing.T, choice Choice, groups []Group[E, F], open func(t *testing.T, other bool) E) {
	check(t, choice.Only, groups)
	check(t, choice.Elsewhere, groups)
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
					c.Run(open(t, c.Other))
				})
			}
		})
	}
}

// missing names the first feature that is needed and that the store lacks.
func missing(needs, have any) string {
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
func check[E, F any](t *testing.T, cases Cases, groups []Group[E, F]) {
	t.Helper()
	for _, want := range cases {
		in, name, single := strings.Cut(want, "/")
		if !slices.ContainsFunc(groups, func(g Group[E, F]) bool {
			return g.Name == in && (!single || slices.ContainsFunc(g.Cases, func(c Case[E, F]) bool { return c.Name == name }))
		}) {
			t.Fatalf("the suite has no %q, which Only or Elsewhere of the harness names", want)
		}
	}
}
