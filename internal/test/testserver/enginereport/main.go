// Enginereport makes a report of the output of go test -json on its standard input, of the suites on the server that PENSTOCK_TEST_POSTGRES
// names. It has which server it is, what passed, what failed, and the output of the failures. Passwords of URLs are left out.
//
// With -server, which shows which it is, no server is asked. -table names a page of the documentation with a row for each engine: this one's
// is replaced or added.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/testserver"
)

type report struct {
	Server  string   `json:"server"` // the answer of version()
	At      string   `json:"at"`
	Seconds float64  `json:"seconds"`
	Passed  []string `json:"passed"`
	Failed  []result `json:"failed"`
	Skipped []result `json:"skipped"`
	Broken  []string `json:"broken,omitempty"` // output that belongs to no test: what did not compile, say
}

type result struct {
	Test   string   `json:"test"`
	Output []string `json:"output"`
}

// kept lines of output of each test: the last.
const kept = 60

func main() {
	text, data := flag.String("text", "engine.txt", "where to write the report"), flag.String("json", "engine.json", "and where as JSON")
	server := flag.String("server", "", "the engine and its version, instead of what the server says")
	page, commit := flag.String("table", "", "the page that has a row for the engine"), flag.String("commit", "", "and the commit that was tested")
	flag.Parse()
	began := time.Now()
	if *server == "" {
		*server = version(os.Getenv(testserver.EnvPostgres))
	}
	fmt.Fprintln(os.Stderr, *server)
	r, err := read(os.Stdin, os.Stderr, 50)
	r.Server, r.At, r.Seconds = *server, began.UTC().Format(time.RFC3339), time.Since(began).Seconds()
	if err == nil {
		err = r.write(*text, *data)
	}
	if err == nil && *page != "" {
		err = r.addTo(*page, *commit)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "enginereport:", err)
		os.Exit(2)
	}
	fmt.Fprint(os.Stderr, r.summary())
	if len(r.Failed)+len(r.Broken) > 0 || len(r.Passed) == 0 {
		os.Exit(1)
	}
}

func version(url string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "unknown: " + scrub(err.Error())
	}
	defer func() { _ = conn.Close(ctx) }()
	var v string
	if err := conn.QueryRow(ctx, "select version()").Scan(&v); err != nil {
		return "unknown: " + scrub(err.Error())
	}
	return v
}

// read takes events. It prints failures as they come, and the numbers so far after each such number of tests.
func read(from io.Reader, progress io.Writer, each int) (r report, err error) {
	r.Passed, r.Failed, r.Skipped = []string{}, []result{}, []result{}
	output := map[string][]string{}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e struct{ Action, Package, Test, Output string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Action == "build-output" {
			r.Broken = append(r.Broken, scrub(strings.TrimRight(cmp.Or(e.Output, lines.Text()), "\n")))
			continue
		}
		name := strings.TrimPrefix(e.Package, "github.com/penstock/penstock/") + " " + e.Test
		switch e.Action {
		case "output":
			all := append(output[name], scrub(strings.TrimRight(e.Output, "\n")))
			output[name] = all[max(0, len(all)-kept):]
			continue
		case "pass":
			if e.Test != "" {
				r.Passed = append(r.Passed, name)
			}
			delete(output, name)
		case "fail":
			r.Failed = append(r.Failed, result{name, output[name]})
			fmt.Fprintln(progress, "FAIL", name)
			delete(output, name)
		case "skip":
			r.Skipped = append(r.Skipped, result{name, output[name]})
			delete(output, name)
		default:
			continue
		}
		if (len(r.Passed)+len(r.Failed)+len(r.Skipped))%each == 0 {
			fmt.Fprintf(progress, "%s; %s\n", r.counts(), name)
		}
	}
	slices.Sort(r.Passed)
	return r, lines.Err()
}

var password = regexp.MustCompile(`(://[^:/@\s]*):[^@\s]*@`)

func scrub(s string) string { return password.ReplaceAllString(s, "$1@") }

func (r *report) summary() string {
	return fmt.Sprintf("%s\n%s, %.0f s: %s\n", r.Server, r.At, r.Seconds, r.counts())
}

func (r *report) counts() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", len(r.Passed), len(r.Failed), len(r.Skipped))
}

func (r *report) write(text, data string) error {
	b := strings.Builder{}
	b.WriteString(r.summary())
	for _, line := range r.Broken {
		b.WriteString(line + "\n")
	}
	for _, part := range []struct {
		title string
		of    []result
	}{{"FAILED", r.Failed}, {"SKIPPED", r.Skipped}} {
		for _, t := range part.of {
			fmt.Fprintf(&b, "\n%s %s\n", part.title, t.Test)
			for _, line := range t.Output {
				b.WriteString("    " + line + "\n")
			}
		}
	}
	fmt.Fprintf(&b, "\nPASSED\n    %s\n", strings.Join(r.Passed, "\n    "))
	if err := os.WriteFile(text, []byte(b.String()), 0o600); err != nil {
		return err
	}
	all, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(data, append(all, '\n'), 0o600)
}
