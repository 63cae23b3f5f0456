// Package adopted describes a table that Penstock did not create and reads unchanged: the meaning of its columns, and the
// mark of a delivered row. Every store that reads such tables uses the same description.
package adopted
