package penstock_test

import (
	"fmt"
	"time"

	"github.com/penstock/penstock"
)

// The cost of 100,000 publishes and a query in a buffered transaction.
func ExampleBufferStats_Explain() {
	fmt.Print(penstock.BufferStats{
		Writes: 100_000, Bytes: 36_000_000, Statements: 34, FlushTime: 1234 * time.Millisecond,
		Flushes: map[penstock.FlushReason]int{penstock.FlushFull: 32, penstock.FlushRead: 1, penstock.FlushCommit: 1},
	}.Explain())
	// Output:
	// Write requests        100000
	// Bytes               36000000
	// Statements                34
	// Flush requests            34
	//   buffer full             32
	//   read                     1
	//   commit                   1
	// Flush time            1.234s
}
