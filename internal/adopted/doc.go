// Package adopted describes a table that Penstock did not create and reads as it is: what its columns mean, and what happens to a
// delivered row. Every store that reads such tables takes the same description.
package adopted
