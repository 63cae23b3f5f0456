// Package check looks at an outbox table that exists already and says what makes
// it slow or unsafe, what that is seen from, and which statements mend it.
//
// Run only reads. Fix creates the indexes that a report suggests, after asking.
// DESIGN.md tells how each finding is read.
package check
