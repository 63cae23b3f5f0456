package postgres_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/penstock/penstock/internal/test/postgrestest"
)

func TestMain(m *testing.M) {
	if as := os.Getenv(workerEnv); as != "" {
		if err := runWorker(as); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := postgrestest.Run(m)
	if err := dropOwned(); err != nil {
		fmt.Fprintln(os.Stderr, "drop the template of the owner's databases:", err)
	}
	os.Exit(code)
}
