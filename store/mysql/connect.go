package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/penstock/penstock"
)

// connector makes connections that Penstock can use: times in UTC, several statements at a time, and READ COMMITTED. Under READ
// COMMITTED a statement that waited for a lock sees the writes of the lock's holder.
type connector struct {
	driver.Connector
	engine  string
	address string
}

// connectorOf takes mysql://user:password@host:port/?engine=rocksdb&tls=true. The database's name in it may be missing.
func connectorOf(text string) (*connector, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "mysql" {
		return nil, &penstock.FieldError{Field: "database_url", Problem: "is not a URL of MySQL or MariaDB", Hint: "write mysql://user:password@host:3306/"} // err would quote it
	}
	if strings.Contains(u.Host, ",") {
		return nil, &penstock.FieldError{Field: "database_url", Problem: "names several hosts", Hint: "name one; a proxy such as ProxySQL finds the primary of several"}
	}
	c := mysql.NewConfig()
	c.Net, c.Addr = "tcp", u.Host
	if u.Port() == "" {
		c.Addr += ":3306"
	}
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.DBName = cmp.Or(strings.TrimPrefix(u.Path, "/"), "information_schema") // MySQL requires a session to have one if a join changes rows, even if the names have their databases
	c.Timeout, c.Loc, c.ParseTime, c.Logger = 10*time.Second, time.UTC, true, &mysql.NopLogger{}
	c.MultiStatements, c.InterpolateParams, c.MaxAllowedPacket = true, true, 0
	c.ClientFoundRows = true      // a row that is changed to the same values counts
	c.Params = map[string]string{ // whatever the server's defaults
		"sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'", "autocommit": "1", "completion_type": "0", "time_zone": "'+00:00'",
		"sql_safe_updates": "0", "sql_select_limit": "18446744073709551615", "sql_big_selects": "1",
	}
	found := &connector{address: c.Addr}
	for name, values := range u.Query() {
		switch name {
		case "engine":
			found.engine = values[0]
		case "tls":
			c.TLSConfig = values[0]
		default:
			return nil, &penstock.FieldError{Field: "database_url", Problem: "has an unknown parameter", Hint: "the parameters are engine and tls (true, skip-verify, preferred); write a ? in the password as %3F"}
		}
	}
	if found.Connector, err = mysql.NewConnector(c); err != nil {
		return nil, &penstock.FieldError{Field: "database_url", Problem: "has a parameter that the driver does not take", Hint: "tls is true, skip-verify or preferred"}
	}
	return found, nil
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	// Locks of a process that is paused or cut off in the middle of a transaction end before its leases do. MySQL has one setting for that and for connections
	// without a transaction, of which the pool then makes new ones.
	if _, err := conn.(driver.ExecerContext).ExecContext(ctx, "set session transaction isolation level read committed; set session autocommit = 1 /*M!100300 , session idle_transaction_timeout = 10 */ /*!80000 , session wait_timeout = 10 */", nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// Connect opens connections configured like a Store's, for programs that measure or test a database. The caller closes them.
func Connect(url string) (*sql.DB, error) {
	c, err := connectorOf(url)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}
