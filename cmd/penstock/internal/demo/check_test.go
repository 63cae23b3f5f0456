package demo

import (
	"strings"
	"testing"
)

// Two aircraft with three and two flights, and one flight without a number.
var committed = []Departure{
	{1, "A", 1}, {2, "B", 1}, {3, "A", 2}, {4, "", 0}, {5, "B", 2}, {6, "A", 3},
}

func arrive(flights ...int64) []Arrival {
	var out []Arrival
	for _, id := range flights {
		d := Departure{Flight: id, Tailnum: "A", Turn: id} // 7 and up were never committed
		if int(id) <= len(committed) {
			d = committed[id-1]
		}
		out = append(out, Arrival{Departure: d, Key: d.Tailnum})
	}
	return out
}

func TestCheck(t *testing.T) {
	altered := arrive(1, 2, 3, 4, 5, 6)
	altered[2].Turn = 7
	wrongKey := arrive(1, 2, 3, 4, 5, 6)
	wrongKey[1].Key = "A"

	for _, tc := range []struct {
		name     string
		arrivals []Arrival
		want     Checked
		example  string
	}{
		{"all", arrive(1, 2, 3, 4, 5, 6), Checked{Delivered: 6}, ""},
		{"aircraft interleaved otherwise", arrive(4, 2, 5, 1, 3, 6), Checked{Delivered: 6}, ""},
		{"nothing", nil, Checked{Lost: 6}, "lost: flight 1"},
		{"one lost in the middle", arrive(1, 2, 4, 5, 6), Checked{Delivered: 5, Lost: 1}, "lost: flight 3"},
		{"the last one lost", arrive(1, 2, 3, 4, 5), Checked{Delivered: 5, Lost: 1}, "lost: flight 6"},
		{"rolled back but delivered", arrive(1, 2, 3, 4, 9, 5, 6), Checked{Delivered: 6, Phantom: 1}, "phantom: flight 9"},
		{"altered", altered, Checked{Delivered: 5, Lost: 1, Phantom: 1}, "phantom: flight 3"},
		{"another aircraft's key", wrongKey, Checked{Delivered: 5, Lost: 1, Phantom: 1}, `with key "A"`},
		{"two flights of one aircraft swapped", arrive(3, 1, 2, 4, 5, 6), Checked{Delivered: 6, OutOfOrder: 1}, "out of order: flight 1"},
		{"one flight late by two", arrive(3, 6, 2, 4, 5, 1), Checked{Delivered: 6, OutOfOrder: 1}, "out of order: flight 1"},
		{"the first flight early", arrive(6, 1, 3, 2, 4, 5), Checked{Delivered: 6, OutOfOrder: 2}, "out of order: flight 1"},
		{"delivered twice", arrive(1, 2, 2, 3, 4, 5, 6, 6), Checked{Delivered: 6, Duplicates: 2}, ""},
		{"redelivered from the start", arrive(1, 2, 3, 1, 2, 3, 4, 5, 6), Checked{Delivered: 6, Duplicates: 3}, ""},
		{"a repeat does not hide disorder", arrive(6, 6, 1, 3, 2, 4, 5), Checked{Delivered: 6, Duplicates: 1, OutOfOrder: 2}, "out of order: flight 1"},
		{"a phantom does not disturb the order", arrive(9, 1, 2, 3, 4, 5, 6), Checked{Delivered: 6, Phantom: 1}, "phantom"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Check(committed, tc.arrivals)
			tc.want.Published = len(committed)
			if got.Published != tc.want.Published || got.Delivered != tc.want.Delivered || got.Lost != tc.want.Lost ||
				got.Phantom != tc.want.Phantom || got.Duplicates != tc.want.Duplicates || got.OutOfOrder != tc.want.OutOfOrder {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			if ok := tc.want.Lost == 0 && tc.want.Phantom == 0 && tc.want.OutOfOrder == 0; got.OK() != ok {
				t.Errorf("OK() = %v, want %v", got.OK(), ok)
			}
			if all := strings.Join(got.Examples, "\n"); !strings.Contains(all, tc.example) || (tc.example == "") != (all == "") {
				t.Errorf("examples are %q, want %q among them", all, tc.example)
			}
		})
	}
}

func TestCheckKeepsFewExamples(t *testing.T) {
	many := make([]Departure, 1000)
	for i := range many {
		many[i] = Departure{Flight: int64(i + 1), Tailnum: "A", Turn: int64(i + 1)}
	}
	if c := Check(many, nil); c.Lost != 1000 || len(c.Examples) != maxExamples {
		t.Errorf("lost %d with %d examples, want 1000 with %d", c.Lost, len(c.Examples), maxExamples)
	}
}
