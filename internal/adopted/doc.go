// Package adopted is how a table is described that somebody else made, and that Penstock reads as it is: which columns mean what, and what
// becomes of a delivered row. Every store that reads such tables takes the same description.
package adopted
