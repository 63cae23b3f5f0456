package testserver

import "testing"

// Promtool is the path of the program that checks and tests rules of Prometheus.
func Promtool(tb testing.TB) string {
	tb.Helper()
	path, err := promtool()
	need(tb, err)
	return path
}

func promtool() (string, error) {
	return find(&MissingError{Server: "promtool, for the alerts", Package: "prometheus", BinVar: "PATH"}, "promtool")
}
