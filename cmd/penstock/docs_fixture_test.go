package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/internal/test/docblock"
)

// reader follows the commands of a page in an empty folder, as a person at a terminal does, with a database.
type reader struct {
	*desk
	page     string
	database string
	env      map[string]string // variables that the page has exported
}

// newReader begins a page, with the database of the variable.
func newReader(t *testing.T, page, url string) *reader {
	t.Helper()
	t.Chdir(t.TempDir())
	return &reader{urlDesk(t, url), page, url, map[string]string{"PENSTOCK_DATABASE_URL": url}}
}

// commands are the commands of a shell block, all of which the test must know.
func (r *reader) commands(block, n int) []docblock.Command {
	r.t.Helper()
	all := docblock.Commands(r.t, docblock.Of(r.t, r.page, "sh")[block])
	if len(all) != n {
		r.t.Fatalf("%s: block %d has %d commands, of which the test knows %d", r.page, block, len(all), n)
	}
	return all
}

// step describes the conditions and effects of a page's command.
type step struct {
	shows   string   // parts with … between them, in either stream
	with    []string // a text of the page, and its replacement here
	more    []string // arguments, such as a free port
	answers string   // answers to its questions
	code    int
	while   func(*running) // for a command that runs until it is stopped: called before stopping it
}

// follow runs the commands of a block, each according to its step.
func (r *reader) follow(block int, steps ...step) {
	r.t.Helper()
	for i, c := range r.commands(block, len(steps)) {
		r.run(c, steps[i])
	}
}

// running is a running command.
type running struct {
	t       *testing.T
	command string
	said    *transcript
	ended   chan struct{}
}

// transcript is the output of a command.
type transcript struct {
	sync.Mutex
	text bytes.Buffer
}

func (w *transcript) Write(p []byte) (int, error) {
	w.Lock()
	defer w.Unlock()
	return w.text.Write(p)
}

func (w *transcript) String() string {
	w.Lock()
	defer w.Unlock()
	return w.text.String()
}

// until waits until the command has had its expected effect.
func (r *running) until(what string, ok func() bool) {
	r.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-r.ended:
			if !ok() {
				r.t.Fatalf("%s has ended before %s: %s", r.command, what, r.said)
			}
		}
	}
}

// finds waits until the command has written text that the pattern matches.
func (r *running) finds(pattern string) (found string) {
	r.t.Helper()
	r.until(pattern, func() bool {
		found = regexp.MustCompile(pattern).FindString(r.said.String())
		return found != ""
	})
	return found
}

// run runs one command.
func (r *reader) run(c docblock.Command, s step) {
	r.t.Helper()
	replace := strings.NewReplacer(s.with...)
	for i := range s.with {
		if i%2 == 0 && !strings.Contains(strings.Join(append(slices.Clone(c.Env), c.Args...), " "), s.with[i]) {
			r.t.Errorf("%s: %q has no %q", r.page, c.Args, s.with[i])
		}
	}
	set := func(assignments []string, to func(name, value string)) {
		for _, a := range assignments {
			name, value, _ := strings.Cut(replace.Replace(a), "=")
			to(name, value)
		}
	}
	switch c.Args[0] {
	case "export":
		set(c.Args[1:], func(name, value string) {
			r.env[name] = value
			r.t.Setenv(name, value) // libraries read some of them
		})
		return
	case "penstock":
	default:
		r.t.Fatalf("%s: the test cannot run %q", r.page, c.Args)
	}
	args := slices.Clone(c.Args[1:])
	for i := range args {
		args[i] = replace.Replace(args[i])
	}
	args = append(args, s.more...)
	run := &running{t: r.t, command: strings.Join(args, " "), said: &transcript{}, ended: make(chan struct{})}
	a := cli.New(strings.NewReader(s.answers), run.said, run.said)
	a.Interactive = true
	own := map[string]string{}
	set(c.Env, func(name, value string) { own[name] = value })
	a.Getenv = func(name string) string {
		if value, is := own[name]; is {
			return value
		}
		return r.env[name]
	}
	ctx, end := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer end()
	code := 0
	go func() {
		defer close(run.ended)
		code = runWith(ctx, a, args)
	}()
	if s.while != nil {
		s.while(run)
		end()
	}
	<-run.ended
	said := run.said.String()
	if code != s.code {
		r.t.Errorf("%s: penstock %s ends with %d, want %d: %s", r.page, run.command, code, s.code, said)
	}
	rest := said
	for part := range strings.SplitSeq(s.shows, "…") {
		_, after, found := strings.Cut(rest, part)
		if !found {
			r.t.Errorf("%s: penstock %s is to show\n%s\nand shows\n%s", r.page, run.command, s.shows, said)
			break
		}
		rest = after
	}
}

// curl makes the request of a curl command, to the server that stands for the page's. It requires that the answer is 200 with a text in it.
func (r *reader) curl(c docblock.Command, said, here, token, want string) {
	r.t.Helper()
	method, body := http.MethodGet, io.Reader(http.NoBody)
	headers := http.Header{}
	var url string
	for i := 1; i < len(c.Args); i++ {
		arg := strings.ReplaceAll(c.Args[i], "$TOKEN", token)
		switch arg {
		case "-H", "-d":
			i++
			value := strings.ReplaceAll(c.Args[i], "$TOKEN", token)
			if arg == "-d" {
				method, body = http.MethodPost, strings.NewReader(value)
				continue
			}
			name, value, _ := strings.Cut(value, ": ")
			headers.Set(name, value)
		default:
			url = arg
		}
	}
	if c.Args[0] != "curl" || !strings.HasPrefix(url, said) {
		r.t.Fatalf("%s: %q is no request of %s", r.page, c.Args, said)
	}
	request, err := http.NewRequestWithContext(r.t.Context(), method, here+strings.TrimPrefix(url, said), body)
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header = headers
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
		r.t.Errorf("%s: %q is answered with %s: %s, want %s", r.page, c.Args, answer.Status, text, want)
	}
}

// executable creates a program in the folder.
func (r *reader) executable(name, script string) {
	r.t.Helper()
	write(r.t, name, "#!/bin/sh\n"+script+"\n")
	if err := os.Chmod(name, 0o700); err != nil {
		r.t.Fatal(err)
	}
}
