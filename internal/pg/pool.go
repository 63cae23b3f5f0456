// Package pg is shared by the packages under store/postgres.
package pg

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock/internal/pgerror"
)

// PoolConfig parses a URL and adds the settings of every Penstock connection: a time limit for
// connecting, a name and UTF-8. If there are several hosts, it connects to the one that accepts
// writes, which changes after a failover.
func PoolConfig(url string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, pgerror.URL(err)
	}
	conn := config.ConnConfig
	if misplaced(&conn.Config) {
		return nil, pgerror.URL(nil)
	}
	if conn.ConnectTimeout == 0 {
		conn.ConnectTimeout = 10 * time.Second
	}
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = "penstock"
	}
	pgerror.Speak(&conn.Config)
	if conn.ValidateConnect == nil && severalHosts(&conn.Config) {
		conn.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	conn.OnNotice = nil
	return config, nil
}

// misplaced is true if a part of a password was parsed as a host or a database. After an unescaped @ or / in a
// password, pgx parses the rest as these, and errors would show it.
func misplaced(config *pgconn.Config) bool {
	return strings.LastIndexByte(config.Host, '@') > 0 || // an abstract socket begins with it
		config.Password == "" && strings.ContainsRune(config.Database, '@')
}

// severalHosts is true if the URL names more than one server; a fallback may also be
// the same one without TLS.
func severalHosts(config *pgconn.Config) bool {
	return slices.ContainsFunc(config.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != config.Host || f.Port != config.Port })
}

// Place shows where a URL's database is, without the login, or "" if that is unknown.
func Place(url string) string {
	c, err := pgconn.ParseConfig(url)
	if err != nil {
		return ""
	}
	hosts := []string{fmt.Sprintf("%s:%d", c.Host, c.Port)}
	for _, f := range c.Fallbacks { // one for each host, and each way of using TLS
		hosts = append(hosts, fmt.Sprintf("%s:%d", f.Host, f.Port))
	}
	slices.Sort(hosts)
	return strings.TrimSpace(c.Database + " at " + strings.Join(slices.Compact(hosts), ", "))
}
