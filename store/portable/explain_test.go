package portable

import (
	"math"
	"os"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/doctor"
)

// What engines say in EXPLAIN, newer and older releases, with the figures that were published of theirs.
func TestPlans(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plan    plan
		about   int64 // rows that the statement is about; -1: those that it returns
		rows    int64
		storage doctor.Storage
		busiest string
		seconds float64
		slow    string
	}{
		"yugabyte_tombstones.json":  {yugabytePlan, -1, 1, doctor.Storage{Reads: 2, Rows: 2, Seeks: 500001, Nexts: 2}, "idx_ts", 2.064389, "walks over deleted rows: 500001 seeks"},
		"yugabyte_low_water.json":   {yugabytePlan, -1, 1, doctor.Storage{Reads: 2, Rows: 2, Seeks: 1, Nexts: 2}, "idx_ts", 0.001705, ""},
		"yugabyte_insert.json":      {yugabytePlan, 100000, 100000, doctor.Storage{Writes: 100000, Flushes: 33}, "", 3.619362, ""},
		"yugabyte_on_conflict.json": {yugabytePlan, 100000, 100000, doctor.Storage{Reads: 100001, Writes: 100000, Flushes: 100000, Rows: 1}, "", 139.684138, "flushes row by row: 100000 flushes for 100000 writes"},
		"yugabyte_steps.json":       {yugabytePlan, 100000, 100000, doctor.Storage{Reads: 98, Writes: 100000, Flushes: 29}, "demo_pkey", 1.609649, ""},
		"yugabyte_2_14.json":        {yugabytePlan, -1, 1, doctor.Storage{}, "idx_ts", 2.064389, ""},
		"cockroach_23_2.txt":        {cockroachPlan, -1, 16, doctor.Storage{Reads: 15, Rows: 1000000, Seeks: 15, Nexts: 1500000}, "outbox_orders@outbox_orders_pkey", 0.375, "reads far: 1000000 rows"},
		"cockroach_22_1.txt":        {cockroachPlan, -1, 9, doctor.Storage{Rows: 9, Seeks: 18, Nexts: 9}, "outbox_orders@outbox_orders_pkey", 1.2, ""},
		"cockroach_21_1.txt":        {cockroachPlan, -1, 2, doctor.Storage{Rows: 7}, "outbox_orders@outbox_orders_pkey", 0.003, ""},
	} {
		text, err := os.ReadFile("testdata/explain/" + name)
		if err != nil {
			t.Fatal(err)
		}
		s := doctor.Statement{Measured: true, Rows: c.about}
		if err := c.plan.read(string(text), &s); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		s.Judge()
		if s.Rows != c.rows || *s.Storage != c.storage || s.Busiest != c.busiest || math.Abs(s.Seconds-c.seconds) > 1e-9 {
			t.Errorf("%s: %d rows, %+v, busiest %q, %v s", name, s.Rows, *s.Storage, s.Busiest, s.Seconds)
		}
		if s.Slow != (c.slow != "") || !strings.Contains(s.Verdict, c.slow) {
			t.Errorf("%s: slow %v: %s", name, s.Slow, s.Verdict)
		}
	}
	for _, p := range []plan{postgresPlan, yugabytePlan, cockroachPlan} {
		for _, text := range []string{"", "[]", "{}", "no such thing", `[{"Plan": 7}`} {
			if err := p.read(text, &doctor.Statement{Rows: -1}); err == nil {
				t.Errorf("%q was understood", text)
			}
		}
	}
}
