package config

import (
	"reflect"

	"github.com/goccy/go-yaml/ast"

	"github.com/penstock/penstock/sink/claimcheck"
)

// ClaimCheck says which payloads are stored outside of messages, and where: a mapping, or the value that
// --claim-check takes.
type ClaimCheck struct {
	claimcheck.Config `yaml:",inline"`
}

// ParseClaimCheck reads a value of --claim-check. The result has its defaults set.
func ParseClaimCheck(url string) (*ClaimCheck, error) {
	c, err := claimcheck.ParseURL(url)
	return &ClaimCheck{c}, err
}

func (c *ClaimCheck) decodeNode(d *decoder, n ast.Node, path string) {
	raw, _, single := scalarText(n)
	if !single {
		d.structure(n, reflect.ValueOf(c).Elem(), path)
		return
	}
	url, ok := d.resolved(raw, nodePlace(n), path)
	if !ok {
		return
	}
	parsed, err := ParseClaimCheck(url)
	if err != nil {
		d.fail(nodePlace(n), path, problem{d.scrub(err.Error()), ""})
		return
	}
	*c = *parsed
}
