package doctor

import "fmt"

// A database on a disk with less than this is a finding: truncating a segment makes a new file first.
const (
	littleFree   = 5 << 30
	littlePart   = 20 // or a twentieth, of a smaller disk
	criticalFree = 256 << 20
)

// Disk measures the disk of a file or folder on this machine: its free bytes, or -1 if unknown.
func Disk(file string) (Finding, int64) {
	free, all, err := room(file)
	if err != nil {
		return Finding{Check: CheckDisk, Severity: Unknown, Found: "cannot find out how much room the disk of the database has: " + err.Error()}, -1
	}
	f := Finding{Check: CheckDisk, Severity: OK, About: file, Found: fmt.Sprintf("%d MiB of %d MiB are free", free>>20, all>>20),
		Measured: []Figure{{Name: "free", Value: float64(free), Unit: "bytes"}, {Name: "size", Value: float64(all), Unit: "bytes"}}}
	if free < min(littleFree, all/littlePart) {
		f.Severity, f.Why = Warning, "without room commits fail; space comes back by TRUNCATE, which needs some first"
		f.Next = "free space, and see which tables grow: penstock status"
	}
	if free < min(criticalFree, all/littlePart) {
		f.Severity = Critical
	}
	return f, free
}
