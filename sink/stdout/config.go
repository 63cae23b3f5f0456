package stdout

import "fmt"

// Config has no settings.
type Config struct{}

// SetDefaults does nothing.
func (*Config) SetDefaults() {}

// Validate returns nil.
func (*Config) Validate() error { return nil }

// ParseURL accepts "stdout", "stdout:" and "-".
func ParseURL(u string) (Config, error) {
	switch u {
	case "stdout", "stdout:", "-":
		return Config{}, nil
	}
	return Config{}, fmt.Errorf("sink URL %q: write just stdout, it has no settings", u)
}
