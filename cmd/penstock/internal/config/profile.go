package config

import (
	"cmp"
	"slices"

	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/store/portable"
	"github.com/penstock/penstock/store/postgres"
)

// Profile is how Penstock uses a database that speaks PostgreSQL's protocol.
type Profile string

// The profiles. Auto asks the server with one more connection: portable on YugabyteDB and CockroachDB, else postgres.
const (
	Auto     Profile = "auto"
	Postgres Profile = "postgres"
	Portable Profile = "portable"
)

// UnmarshalText parses auto, postgres and portable.
func (p *Profile) UnmarshalText(b []byte) error { return oneOf(p, b, Auto, Postgres, Portable) }

// Of returns the URL of a database that is used in this way. Its scheme names the driver, so every user of the URL
// opens it in the same way. Auto calls ask, which asks a PostgreSQL-like server whether only the portable profile can
// use it. If ask is nil, no server is asked.
func (p Profile) Of(url string, ask func(url string) (portable bool)) string {
	if p == Portable || p == Auto && ask != nil && slices.Contains(postgres.Driver.Schemes, drivers.Scheme(url)) && ask(url) {
		return portable.URL(url)
	}
	return url
}

func (p Profile) or(over Profile) Profile { return cmp.Or(over, p) }
