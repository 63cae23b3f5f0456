package tables

import "testing"

// A name that was filled in is not read again, although it may look like a word.
func TestRender(t *testing.T) {
	t.Parallel()
	fill := func(name string) (string, bool) {
		if column, list, ok := In(name); ok {
			return column + " in (" + list + ")", true
		}
		word, ok := map[string]string{"table": "`{schema}`", "schema": "s"}[name]
		return word, ok
	}
	for text, want := range map[string]string{
		"":                             "",
		"select 1":                     "select 1",
		"delete from {schema}.{table}": "delete from s.`{schema}`",
		"{other} {schema}":             "{other} s",
		"{{schema}}":                   "{s}",
		"where {e.seq in seqs}":        "where e.seq in (seqs)",
		"{schema":                      "{schema",
		"} {schema}":                   "} s",
	} {
		if got := Render(text, fill); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
