package systemtest

import (
	"os"
)

// Tests that begin with TestTopology run Penstock where people run it: behind
// poolers, in clusters, with a standby, on a full disk. Each counts what was lost,
// duplicated and out of order. make test runs a quick form of those whose servers are
// there.

// envTopologies asks for the long form.
const envTopologies = "PENSTOCK_TOPOLOGIES"

func longForm() bool { return os.Getenv(envTopologies) != "" }

// times is how often a test does something: few times, or many in the long form.
func times(quick, long int) int {
	if longForm() {
		return long
	}
	return quick
}
