package console

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/admin"
)

// Cause is a common reason of dead letters: the first lines of their errors differ only in numbers and ids.
type Cause struct {
	Cause   string `json:"cause"`
	Example string `json:"example"`
	// Contains is a part of all their errors. As error in a filter it chooses them. Empty if there is no such
	// part.
	Contains string    `json:"contains,omitempty"`
	Letters  int64     `json:"letters"`
	First    time.Time `json:"first_died_at"`
	Last     time.Time `json:"last_died_at"`
}

// Causes are those of the first matching dead letters, up to a limit.
type Causes struct {
	Causes []Cause `json:"causes"`
	// Letters match; more says that not all were read.
	Letters int64 `json:"letters"`
	More    bool  `json:"more"`
}

var varies = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|0x[0-9a-fA-F]+|\d+(?:[.:]\d+)*`)

func (c *Console) causesOf(ctx context.Context, b box, f Filter) (Causes, error) {
	const most = 10_000
	all := Causes{Causes: []Cause{}}
	var found []admin.DeadCause
	read := func(f Filter) (bool, error) {
		some, err := b.causes(ctx, f, most)
		for _, one := range some {
			all.Letters += one.Letters
		}
		found = append(found, some...)
		return all.Letters >= most, err
	}
	enough, err := false, error(nil)
	if f.narrows() {
		_, goOn, failed := inWindows(ctx, b, f, 0, lookFor, read)
		enough, err = goOn > 0, failed
	} else {
		enough, err = read(f)
	}
	if err != nil {
		return Causes{}, err
	}
	all.More = enough
	at := map[string]int{}
	for _, one := range found {
		line, _, _ := strings.Cut(one.Error, "\n")
		name := varies.ReplaceAllString(line, "…")
		i, known := at[name]
		if !known {
			i = len(all.Causes)
			at[name] = i
			all.Causes = append(all.Causes, Cause{Cause: name, Example: one.Error, Contains: longest(name), First: one.First, Last: one.Last})
		}
		k := &all.Causes[i]
		k.Letters += one.Letters
		if one.First.Before(k.First) {
			k.First = one.First
		}
		if one.Last.After(k.Last) {
			k.Last = one.Last
		}
	}
	slices.SortStableFunc(all.Causes, func(a, b Cause) int { return int(b.Letters - a.Letters) })
	return all, nil
}

// longest is the longest part of a cause that does not vary.
func longest(cause string) (part string) {
	for _, s := range strings.Split(cause, "…") {
		if len(s) > len(part) {
			part = s
		}
	}
	return part
}
