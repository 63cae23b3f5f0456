package sqlite_test

import (
	"database/sql"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/sqlite"
)

// What runs for every batch neither reads a whole table nor sorts it: a key with
// 100,000 messages, or 100,000 parked keys, would make it slower and slower.
func TestStatementsUseIndexes(t *testing.T) {
	_, _, app := newFile(t, sqlite.Options{})
	for name, statement := range sqlite.HotStatements("orders") {
		usesIndexes(t, app, name, statement, "m", "r")
		for _, step := range explain(t, app, name, statement) {
			if strings.HasSuffix(step, "PRIMARY KEY (subscription_id=?)") && name != "state" { // it asks whether there are any
				t.Errorf("%s goes through all entries of a subscription: %s", name, step)
			}
		}
	}
}

// Nor does what runs for every job: neither the statements nor the triggers pass
// over what is leased, waits or is delayed.
func TestQueueStatementsUseIndexes(t *testing.T) {
	path, _, q := newQueue(t, penstock.LIFO)
	app := openApp(t, path)
	if _, err := q.(driver.BarrierQueue).Barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, statement := range sqlite.HotQueueStatements("jobs") {
		usesIndexes(t, app, name, statement, "given")
		for _, step := range explain(t, app, name, statement) {
			// A queue has many of these. Only max_running counts what is leased,
			// which is not more than it allows; and people look for dead letters.
			whole := strings.HasSuffix(step, "(queue_id=?)") || strings.HasSuffix(step, "until>?)") || strings.HasSuffix(step, "due>?)")
			whole = whole && !strings.Contains(step, "penstock_barriers_dead") // only those with dead jobs
			if whole && name != "claimable" && name != "dead_jobs" {
				t.Errorf("%s goes through all of a queue: %s", name, step)
			}
		}
	}
	rows, err := app.Query(`select name, sql from sqlite_schema where type = 'trigger'`)
	if err != nil {
		t.Fatal(err)
	}
	triggers := map[string]string{}
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			t.Fatal(err)
		}
		triggers[name] = regexp.MustCompile(`\b(new|old)\.[a-z_]+`).ReplaceAllString(text, "null")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if len(triggers) != 13 {
		t.Errorf("%d triggers, want 13", len(triggers))
	}
	for name, text := range triggers {
		head, body, _ := strings.Cut(text, "begin")
		if _, when, ok := strings.Cut(head, "when"); ok {
			usesIndexes(t, app, name+" when", "select "+when)
		}
		for _, statement := range strings.Split(strings.TrimSuffix(strings.TrimSpace(body), "end"), ";") {
			if strings.TrimSpace(statement) != "" && !strings.Contains(statement, "raise(") {
				usesIndexes(t, app, name, statement)
			}
		}
	}
}

// explain returns the steps of a statement's plan.
func explain(t *testing.T, app *sql.DB, name, statement string) (plan []string) {
	t.Helper()
	rows, err := app.Query("explain query plan " + statement)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, step)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan
}

// usesIndexes explains a statement: all that it goes through are lists of its
// caller's, named by their aliases, and only such a list is sorted.
func usesIndexes(t *testing.T, app *sql.DB, name, statement string, lists ...string) {
	t.Helper()
	plan := explain(t, app, name, statement)
	ofList := func(step string) bool {
		table, scans := strings.CutPrefix(step, "SCAN ")
		table, _, _ = strings.Cut(table, " ")
		return scans && slices.Contains(append(lists, "j", "json_each", "CONSTANT"), table)
	}
	for _, step := range plan {
		if strings.HasPrefix(step, "SCAN ") && !ofList(step) || strings.Contains(step, "AUTOMATIC") ||
			strings.HasSuffix(step, "FOR ORDER BY") && !ofList(plan[0]) {
			t.Errorf("%s: %s\n%s", name, step, strings.Join(plan, "\n"))
		}
	}
}
