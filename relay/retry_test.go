package relay

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock"
)

func TestRetryPolicy(t *testing.T) {
	policy := func(change func(*Options)) retryPolicy {
		c := Options{}
		c.SetDefaults()
		if change != nil {
			change(&c)
		}
		return retryPolicy{&c, func(d time.Duration) time.Duration { return d }} // no chance
	}
	defaults := policy(nil)
	limited := policy(func(c *Options) { c.MaxAge = time.Hour })
	unlimited := policy(func(c *Options) { c.MaxAttempts = -1 })
	holding := policy(func(c *Options) { c.OnDead = OnDeadHold })
	once := policy(func(c *Options) { c.ParkAfter = 1 })
	permanent, after := penstock.Permanent(errFlaky), penstock.RetryAfter(errFlaky, 300*time.Millisecond)

	for name, c := range map[string]struct {
		policy retryPolicy
		r      refusal
		want   decision
	}{
		"first":                   {defaults, refusal{err: errFlaky, attempt: 1, tries: 1, fresh: true}, decision{action: again, in: 100 * time.Millisecond}},
		"second":                  {defaults, refusal{err: errFlaky, attempt: 2, tries: 2, fresh: true}, decision{action: again, in: 200 * time.Millisecond}},
		"third":                   {defaults, refusal{err: errFlaky, attempt: 3, tries: 3, fresh: true}, decision{action: park, in: 400 * time.Millisecond}},
		"parked before":           {defaults, refusal{err: errFlaky, attempt: 4, tries: 1}, decision{action: park, in: 800 * time.Millisecond}},
		"grown":                   {defaults, refusal{err: errFlaky, attempt: 20, tries: 1}, decision{action: park, in: 5 * time.Minute}},
		"last":                    {defaults, refusal{err: errFlaky, attempt: 25, tries: 1}, decision{action: die}},
		"beyond the limit":        {defaults, refusal{err: errFlaky, attempt: 26, tries: 1}, decision{action: die}},
		"no limit":                {unlimited, refusal{err: errFlaky, attempt: 1000, tries: 1}, decision{action: park, in: 5 * time.Minute}},
		"park at once":            {once, refusal{err: errFlaky, attempt: 1, tries: 1, fresh: true}, decision{action: park, in: 100 * time.Millisecond}},
		"young":                   {limited, refusal{err: errFlaky, attempt: 9, tries: 1, age: time.Hour - 1}, decision{action: park, in: 25600 * time.Millisecond}},
		"old":                     {limited, refusal{err: errFlaky, attempt: 9, tries: 1, age: time.Hour}, decision{action: die}},
		"age without limit":       {defaults, refusal{err: errFlaky, attempt: 9, tries: 1, age: 1000 * time.Hour}, decision{action: park, in: 25600 * time.Millisecond}},
		"permanent":               {defaults, refusal{err: permanent, attempt: 1, tries: 1, fresh: true}, decision{action: die}},
		"asked for a short while": {defaults, refusal{err: after, attempt: 1, tries: 1, fresh: true}, decision{action: again, in: 300 * time.Millisecond}},
		"asked for, later":        {defaults, refusal{err: after, attempt: 9, tries: 1}, decision{action: park, in: 300 * time.Millisecond}},
		"asked for long":          {defaults, refusal{err: penstock.RetryAfter(errFlaky, time.Hour), attempt: 1, tries: 1, fresh: true}, decision{action: park, in: time.Hour}},
		"asked for nothing":       {defaults, refusal{err: penstock.RetryAfter(errFlaky, 0), attempt: 1, tries: 1, fresh: true}, decision{action: again, in: 100 * time.Millisecond}},
		"hold":                    {holding, refusal{err: permanent, attempt: 1, tries: 1, inOrder: true}, decision{action: die, hold: true}},
		"nobody to hold":          {holding, refusal{err: permanent, attempt: 1, tries: 1}, decision{action: die}},
		"hold only the dead":      {holding, refusal{err: errFlaky, attempt: 3, tries: 3, inOrder: true}, decision{action: park, in: 400 * time.Millisecond}},
	} {
		if got := c.policy.decide(c.r); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestGrownAndSpread(t *testing.T) {
	for n := 1; n < 200; n++ {
		whole := 30 * time.Second
		if n < 10 {
			whole = 100 * time.Millisecond << (n - 1)
		}
		if d := grown(n, 100*time.Millisecond, 30*time.Second); d != whole {
			t.Errorf("after %d failures: %v, want %v", n, d, whole)
		}
		if d := spread(whole); d < whole/2 || d > whole {
			t.Errorf("%v spread to %v", whole, d)
		}
	}
}

// The text of an error goes to a database, whatever the broker put into it.
func TestErrorText(t *testing.T) {
	got := text(errors.New("no\x00t \xff" + strings.Repeat("ü", maxErrorBytes)))
	if !utf8.ValidString(got) || strings.Contains(got, "\x00") || len(got) > maxErrorBytes+16 || !strings.HasPrefix(got, "no\uFFFDt \uFFFD") {
		t.Errorf("%q", got)
	}
}
