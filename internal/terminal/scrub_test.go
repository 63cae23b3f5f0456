package terminal

import (
	"bytes"
	"testing"
)

// net/url does not accept several hosts with ports.
func TestScrubberKnowsSeveralHosts(t *testing.T) {
	var out bytes.Buffer
	s := NewScrubber(&out)
	s.Hide("postgres://app:p%40ss@db1:5432,db2:5432/shop?target_session_attrs=read-write")
	line := "cannot use postgres://app:p%40ss@db1:5432,db2:5432 with :p@ss@ and password=p@ss\n"
	if n, err := s.Write([]byte(line)); n != len(line) || err != nil {
		t.Errorf("Write returned %d, %v", n, err)
	}
	if want := "cannot use postgres://app:xxxxx@db1:5432,db2:5432 with :xxxxx@ and password=xxxxx\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
