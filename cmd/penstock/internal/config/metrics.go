package config

import (
	"cmp"
	"fmt"
	"net"
	"time"

	"github.com/penstock/penstock"
)

// Metrics says where a relay serves its metrics and which ones; see metrics.Options.
type Metrics struct {
	// Listen is an address such as 127.0.0.1:9464. Without one, metrics are not served.
	Listen       string        `yaml:"listen"`
	StatusEvery  time.Duration `yaml:"status_every"`
	StalledAfter time.Duration `yaml:"stalled_after"`
	Groups       int           `yaml:"groups"`
}

// SetDefaults sets the fields that are zero.
func (m *Metrics) SetDefaults() {
	m.StatusEvery = cmp.Or(m.StatusEvery, 10*time.Second)
	m.StalledAfter = cmp.Or(m.StalledAfter, 2*time.Minute)
}

// maxGroups bounds the series of a queue.
const maxGroups = 1000

// Validate returns the first setting that cannot be served.
func (m *Metrics) Validate() error {
	if m.Groups < 0 || m.Groups > maxGroups {
		return &penstock.FieldError{Field: "groups", Problem: fmt.Sprintf("is %d", m.Groups), Hint: fmt.Sprintf("use 0 to %d", maxGroups)}
	}
	return listenable(m.Listen)
}

func listenable(address string) error {
	if _, port, err := net.SplitHostPort(address); address != "" && (err != nil || port == "") {
		return &penstock.FieldError{Field: "listen", Problem: fmt.Sprintf("is %q", address), Hint: "write an address and a port, as in 127.0.0.1:9464"}
	}
	return nil
}
