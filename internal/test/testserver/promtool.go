package testserver

import (
	"os/exec"
	"testing"
)

// Promtool is the path of the program that checks and tests rules of Prometheus.
func Promtool(tb testing.TB) string {
	tb.Helper()
	path, err := promtool()
	need(tb, err)
	return path
}

func promtool() (string, error) {
	path, err := exec.LookPath("promtool")
	if err != nil {
		return "", &MissingError{Server: "promtool, for the alerts", Package: "prometheus", BinVar: "PATH"}
	}
	return path, nil
}
