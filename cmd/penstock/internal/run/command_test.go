package run

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock"
)

func TestLastLines(t *testing.T) {
	for _, tc := range []struct {
		said []string
		want string
	}{
		{nil, "failed"},
		{[]string{" \n\n"}, "failed"},
		{[]string{"one\n", "two\n"}, "failed: one\ntwo"},
		{[]string{"cut off here\n" + strings.Repeat("x", keptStderr-5) + "\nend"}, "failed: " + strings.Repeat("x", keptStderr-5) + "\nend"},
		{[]string{strings.Repeat("x", 3*keptStderr)}, "failed: " + strings.Repeat("x", keptStderr)},
		{[]string{strings.Repeat("x", 3*keptStderr) + "\n"}, "failed: " + strings.Repeat("x", keptStderr-1)},
	} {
		var l lastLines
		for _, part := range tc.said {
			if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
				t.Errorf("Write returned %d, %v", n, err)
			}
		}
		if got := l.after("failed").Error(); got != tc.want {
			t.Errorf("%.20q: got %q, want %q", tc.said, got, tc.want)
		}
	}
}

func TestJobEnvironment(t *testing.T) {
	env := jobEnvironment([]string{"A=b", "PENSTOCK_JOB_KEY=old", "PENSTOCK_DATABASE_URL=x", "PENSTOCK_HTTP_SECRETS=y", "PGPASSWORD=z", "PGPASSFILE=/f", "PGSERVICE=s", "PGSERVICEFILE=/f", "PGSYSCONFDIR=/d", "PGSSLKEY=/k", "PGSSLPASSWORD=p", "TRACEPARENT=a", "TRACESTATE=b", "PGHOST=h"}, "q", &penstock.Job{ID: 7, Headers: map[string]string{"LD_PRELOAD": "x", "PATH=": "y"}})
	for _, want := range []string{"A=b", "PGHOST=h", "PENSTOCK_JOB_ID=7", "PENSTOCK_JOB_HEADER_LD_PRELOAD=x", "PENSTOCK_JOB_HEADER_PATH_=y"} {
		if !slices.Contains(env, want) {
			t.Errorf("%s is not in %q", want, env)
		}
	}
	if slices.Contains(env, "PENSTOCK_JOB_KEY=old") || len(env) != 10 {
		t.Errorf("got %q", env)
	}
}

func TestVerdictOfWhatCannotBeRun(t *testing.T) {
	err := (&execution{}).verdict(&penstock.Job{}, errors.New("no memory"), &lastLines{})
	if penstock.IsPermanent(err) || err.Error() != "the command could not be run: no memory" {
		t.Errorf("got %v", err)
	}
}
