package terminal

import (
	"fmt"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	var out strings.Builder
	table := NewTable(&out, Right("N"), Cut("NAME", 6), Left("LAST"))
	for _, row := range [][]string{{"1", "short", "x"}, {"12", "a\nvery long one", ""}, {"3", "größer", "y z"}} {
		table.Row(row...)
	}
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := " N  NAME    LAST\n 1  short   x\n12  a\\nve…  -\n 3  größer  y z\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	out.Reset()
	for i := range 3 * learnFrom {
		table.Row(fmt.Sprint(i), "n", strings.Repeat("z", i%3))
		if i > learnFrom+1 && out.Len() == 0 {
			t.Fatal("nothing is written as it goes")
		}
	}
}
