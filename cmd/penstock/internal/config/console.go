package config

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/drivers"
)

// Console says where and how to serve the console; see docs/operations/console.md. Its tokens are in the environment.
type Console struct {
	// Listen is an address such as 127.0.0.1:8484. Without one, only penstock console serves it.
	Listen string `yaml:"listen"`
	// BasePath is its path behind a proxy, as in /penstock.
	BasePath string   `yaml:"base_path"`
	Title    string   `yaml:"title"`
	Redact   []string `yaml:"redact"`
	// StatementTimeout is the time after which PostgreSQL ends a statement of the console.
	StatementTimeout Age `yaml:"statement_timeout"`
	// Databases are shown by penstock console instead of database_url.
	Databases []URL `yaml:"databases"`
}

// SetDefaults sets the fields that are zero.
func (c *Console) SetDefaults() {
	c.StatementTimeout = cmp.Or(c.StatementTimeout, Age(5*time.Second))
}

// Validate returns the first setting that cannot be served.
func (c *Console) Validate() error {
	if c.BasePath != "" && !strings.HasPrefix(c.BasePath, "/") {
		return &penstock.FieldError{Field: "base_path", Problem: "has no slash first", Hint: "write it as in /penstock"}
	}
	for i, url := range c.Databases {
		err := drivers.CheckStore(url.Reveal(), "")
		if field, ok := errors.AsType[*penstock.FieldError](err); ok {
			field.Field = fmt.Sprintf("databases[%d]", i)
		}
		if err != nil {
			return err
		}
	}
	return listenable(c.Listen)
}
