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

// The profiles there are. Auto has the server asked, by one more connection: portable on YugabyteDB and CockroachDB, else postgres.
const (
	Auto     Profile = "auto"
	Postgres Profile = "postgres"
	Portable Profile = "portable"
)

// UnmarshalText takes auto, postgres and portable.
func (p *Profile) UnmarshalText(b []byte) error {
	switch *p = Profile(b); *p {
	case Auto, Postgres, Portable:
		return nil
	}
	return &hintError{*notOneOf(string(b), []string{string(Auto), string(Postgres), string(Portable)})}
}

// Of is the URL of a database used like this. The driver is in its scheme, so every user of the URL opens it so. Auto
// goes by ask, which asks a server of PostgreSQL's protocol whether only the portable profile can use it; without ask
// no server is asked.
func (p Profile) Of(url string, ask func(url string) (portable bool)) string {
	if p == Portable || p == Auto && ask != nil && slices.Contains(postgres.Driver.Schemes, drivers.Scheme(url)) && ask(url) {
		return portable.URL(url)
	}
	return url
}

func (p Profile) or(over Profile) Profile { return cmp.Or(over, p) }
