package adopt_test

import (
	"os"
	"testing"

	"github.com/penstock/penstock/internal/test/postgrestest"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Run(m)) }
