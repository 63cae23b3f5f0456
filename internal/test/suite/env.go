package suite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/testseed"
)

const (
	// Deadline ends a test whose condition never came. It is far longer than any condition takes, so a
	// slow machine fails nothing.
	Deadline = 15 * time.Minute
	// LongLease outlives every test; ShortLease is one that a test lets expire.
	LongLease  = time.Hour
	ShortLease = 100 * time.Millisecond
)

// Env is one test: helpers that fail it instead of returning errors.
type Env struct {
	testing.TB
	ctx       context.Context
	seedShown sync.Once
}

// place is the line of the case, of which a helper, or one that it called, has failed. So the helpers of suites do not call Helper.
func place() string {
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for last := (runtime.Frame{}); ; {
		frame, more := frames.Next()
		if f := strings.ToLower(frame.Function); strings.Contains(f, ".run.func") || strings.Contains(f, "/suite.run[") { // which has called the case
			return fmt.Sprintf("%s:%d:", path.Base(last.File), last.Line)
		}
		if last = frame; !more {
			return "" // another goroutine's
		}
	}
}

// Error, Errorf, Fatal and Fatalf are those of TB, with the line of the case as well.
func (e *Env) Error(args ...any) {
	e.Helper()
	e.TB.Error(append([]any{place()}, args...)...)
}

func (e *Env) Errorf(format string, args ...any) {
	e.Helper()
	e.TB.Error(place(), fmt.Sprintf(format, args...))
}

func (e *Env) Fatal(args ...any) {
	e.Helper()
	e.TB.Fatal(append([]any{place()}, args...)...)
}

func (e *Env) Fatalf(format string, args ...any) {
	e.Helper()
	e.TB.Fatal(place(), fmt.Sprintf(format, args...))
}

// NewEnv has a context that ends with the test, or at its deadline.
func NewEnv(t testing.TB) *Env {
	ctx, cancel := context.WithTimeout(t.Context(), Deadline*time.Duration(testseed.Rounds()))
	t.Cleanup(cancel)
	return &Env{TB: t, ctx: ctx}
}

func (e *Env) Context() context.Context { return e.ctx }

func (e *Env) Must(err error, what string) {
	e.Helper()
	if err != nil {
		e.Fatalf("%s: %v", what, err)
	}
}

// OK fails the test on any of the errors.
func (e *Env) OK(errs ...error) { OK(e, errs...) }

// OK is Env's for a test without one.
func OK(tb testing.TB, errs ...error) {
	tb.Helper()
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
}

// Fails fails the test unless err is an error.
func (e *Env) Fails(err error, what string, args ...any) {
	e.Helper()
	if err == nil {
		e.Errorf("%s succeeded", fmt.Sprintf(what, args...))
	}
}

// Err is the error of a call whose result does not matter.
func Err[T any](_ T, err error) error { return err }

// Got is the result of a call and its error.
type Got[T any] struct {
	value T
	err   error
}

// Get takes both, as in suite.Get(q.Claim(ctx, c)).Must(e, "Claim").
func Get[T any](value T, err error) Got[T] { return Got[T]{value, err} }

// Must fails the test on the error, or returns the result.
func (g Got[T]) Must(e interface {
	Helper()
	Must(err error, what string)
}, what string) T {
	e.Helper()
	e.Must(g.err, what)
	return g.value
}

// MustBe fails the test unless err is, or wraps, want.
func (e *Env) MustBe(err, want error, what string) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Fatalf("%s: got error %v, want one that is %q", what, err, want)
	}
}

// Equal fails the test unless both are the same; nothing is the same as an empty list or map. MustEqual ends it as well.
func Equal[T any](t fataler, got, want T, what string, args ...any) {
	t.Helper()
	if !same(got, want) {
		t.Errorf("%s: got %s, want %s", fmt.Sprintf(what, args...), show(got), show(want))
	}
}

func MustEqual[T any](t fataler, got, want T, what string, args ...any) {
	t.Helper()
	if !same(got, want) {
		t.Fatalf("%s: got %s, want %s", fmt.Sprintf(what, args...), show(got), show(want))
	}
}

type fataler interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

func same(got, want any) bool {
	if reflect.DeepEqual(got, want) {
		return true
	}
	a, b := reflect.ValueOf(got), reflect.ValueOf(want)
	return (a.Kind() == reflect.Slice || a.Kind() == reflect.Map) && a.Len()+b.Len() == 0
}

// show quotes texts, and cuts long values.
func show(value any) string {
	switch value.(type) {
	case string, []string, []byte:
		return fmt.Sprintf("%.500q", value)
	}
	return fmt.Sprintf("%.1000s", fmt.Sprintf("%+v", value))
}

// BadField fails the test unless err is a *FieldError whose field begins so.
func (e *Env) BadField(what string, err error, field string) {
	e.Helper()
	if f, ok := errors.AsType[*penstock.FieldError](err); !ok {
		e.Errorf("%s: got error %v, want a *FieldError", what, err)
	} else if !strings.HasPrefix(f.Field, field) {
		e.Errorf("%s: the FieldError names %q, want %q", what, f.Field, field)
	}
}

// Eventually asks cond again and again until it is true.
func (e *Env) Eventually(what string, cond func() bool) {
	e.Helper()
	for pause := time.Millisecond; !cond(); pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-e.ctx.Done():
			e.Fatalf("it never came to be that %s", what)
		case <-time.After(pause):
		}
	}
}

// Random returns a generator that PENSTOCK_SEED repeats; part separates several of
// one test apart.
func (e *Env) Random(part int) *rand.Rand {
	e.Helper()
	e.seedShown.Do(func() { e.Logf("PENSTOCK_SEED=%d", testseed.Seed()) })
	return testseed.New(e.Name(), part)
}

// Concurrently runs f(0) to f(n-1) at the same time and joins their errors.
func Concurrently(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Ender is how a transaction ends.
type Ender interface {
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// Open is a transaction that fails the test.
type Open[T Ender] struct {
	*Env
	Tx T
}

// Begin begins a transaction, which does not outlive the test.
func Begin[T Ender](e *Env, begin func(ctx context.Context) (T, error)) Open[T] {
	e.Helper()
	t, err := begin(e.ctx)
	e.Must(err, "Begin")
	e.Cleanup(func() { _ = t.Rollback(context.WithoutCancel(e.ctx)) })
	return Open[T]{e, t}
}

func (o Open[T]) Commit() {
	o.Helper()
	o.Must(o.Tx.Commit(o.ctx), "Commit")
}

func (o Open[T]) Rollback() {
	o.Helper()
	o.Must(o.Tx.Rollback(o.ctx), "Rollback")
}
