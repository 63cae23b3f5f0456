package testserver

import "testing"

// Between being drawn and being listened on, and while its server is dead, a port goes to no other
// call.
func TestPortIsGivenOnce(t *testing.T) {
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	if err := reserve(port); err == nil {
		t.Errorf("port %d was given twice", port)
	}
}
