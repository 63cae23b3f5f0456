// Package commands has the pages of penstock's commands, whose texts and examples the program shows as --help.
package commands

import "embed"

// Pages by the names of their files.
//
//go:embed *.md
var Pages embed.FS
