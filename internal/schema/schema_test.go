package schema

import (
	"fmt"
	"testing"
)

func TestColumns(t *testing.T) {
	got := Columns("create table if not exists {schema}.a (\n  id bigint primary key, -- with a comment, and a comma\n  `key` varbinary(10) not null default (x(1, 2)),\n" +
		"  key a_key (id),\n  unique (id, name),\n  check (id > 0)\n);\n\ncreate table b (name name primary key, key text not null);\nalter table a\n    add column c int,\n    add column d int;\n" +
		"alter table a drop column c;\nalter table b rename column name to called;\ncreate type c as (\n  x int\n);\ncreate table gone (id int);\ndrop table gone;\n")
	if want := "[{a id} {a key} {a d} {b called} {b key}]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if got, want := Lacking(got, func(c Column) bool { return c == Column{"a", "id"} }), "the column key of a, the column d of a, the table b"; got != want {
		t.Errorf("it lacks %s, want %s", got, want)
	}
}
