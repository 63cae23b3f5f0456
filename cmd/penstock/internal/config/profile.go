package config

import (
	"cmp"
	"context"
	"slices"

	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/store/portable"
	"github.com/penstock/penstock/store/postgres"
)

// Profile is how Penstock uses a database that speaks PostgreSQL's protocol.
type Profile string

// The profiles there are. Auto asks the server, by one more connection: portable on YugabyteDB and CockroachDB, else postgres.
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

// Of is the URL of a database used like this. The driver is in its scheme, so whoever has the URL opens it so.
func (p Profile) Of(url string) string {
	if p == Portable || p == Auto && slices.Contains(postgres.Driver.Schemes, drivers.Scheme(url)) && portable.Wanted(context.Background(), url) {
		return portable.URL(url)
	}
	return url
}

func (p Profile) or(over Profile) Profile { return cmp.Or(over, p) }
