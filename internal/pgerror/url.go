package pgerror

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
)

// URL explains why pgx could not parse a database URL. It leaves out pgx's own error, which repeats
// the URL, perhaps with a password in an unexpected place.
func URL(err error) error {
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return &penstock.FieldError{Field: "database URL", Problem: fmt.Sprintf("names a file that cannot be read: %s: %v", file.Path, file.Err),
			Hint: "correct sslrootcert, sslcert or sslkey, in the URL or in the environment (PGSSLROOTCERT and so on)"}
	}
	return &penstock.FieldError{Field: "database URL", Problem: "cannot be read",
		Hint: "write postgres://user:password@host:5432/database, special characters as %XX, and options such as sslmode with values that libpq has"}
}

// Speak sets the format of Penstock's own statements and results, whatever the database's or the
// role's settings. It uses startup parameters, because a pooler keeps these separately for its
// clients.
func Speak(config *pgconn.Config) {
	config.RuntimeParams["client_encoding"] = "UTF8"
	config.RuntimeParams["datestyle"] = "ISO"
	config.RuntimeParams["standard_conforming_strings"] = "on"
	then := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		// Such a database does not know the encoding of its bytes: it would refuse to return text that is
		// not UTF-8, and one such key would stop every user.
		if conn.ParameterStatus("server_encoding") == "SQL_ASCII" {
			if err := conn.Exec(ctx, "set client_encoding = 'SQL_ASCII'").Close(); err != nil {
				return err
			}
		}
		if then != nil {
			return then(ctx, conn)
		}
		return nil
	}
}
