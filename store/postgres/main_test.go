package postgres_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/penstock/penstock/internal/test/postgrestest"
)

func TestMain(m *testing.M) {
	code := postgrestest.Run(m)
	if err := dropOwned(); err != nil {
		fmt.Fprintln(os.Stderr, "drop the template of the owner's databases:", err)
	}
	os.Exit(code)
}
