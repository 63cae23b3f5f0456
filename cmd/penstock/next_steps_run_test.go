package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/terminal"
)

// Each next step runs as it is printed, with names that a shell would split.
func TestNextStepsRunAsPrinted(t *testing.T) {
	t.Chdir(t.TempDir())
	const url = "sqlite:a file.db"
	store, err := drivers.OpenStore(t.Context(), url, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	queue := store.(driver.QueueStore).DriverQueue("odd queue")
	dead := func(t *testing.T) {
		jobs, err := queue.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Minute})
		if err != nil || len(jobs) != 1 {
			t.Fatal(jobs, err)
		}
		if err := queue.DeadLetter(t.Context(), jobs[0].Lease, "no"); err != nil {
			t.Fatal(err)
		}
		(&desk{t: t, store: store}).relay("odd outbox", "odd reader", dies)
	}
	for _, c := range []struct {
		args  []string
		steps []string // beginnings of commands
		first func(t *testing.T)
	}{
		{args: []string{"status"}, steps: []string{"migrate "}},
		{args: []string{"status"}, steps: []string{"outbox create ", "queue create "}},
		{args: []string{"publish", "odd outbox", "--payload", "x"}, steps: []string{"outbox create "}},
		{args: []string{"enqueue", "odd queue", "x"}, steps: []string{"queue create "}},
		{args: []string{"outbox", "create", "odd outbox"}},
		{args: []string{"queue", "create", "odd queue"}},
		{args: []string{"inbox", "status"}, steps: []string{"inbox create "}},
		{args: []string{"inbox", "held", "odd consumer"}, steps: []string{"inbox create "}},
		{args: []string{"schedule", "drop", "odd queue", "nightly"}, steps: []string{"schedule list "}},
		{args: []string{"schedule", "list", "odd queue"}, steps: []string{"schedule set "}},
		{args: []string{"explain", "neither"}, steps: []string{"status "}},
		{args: []string{"status", "neither"}, steps: []string{"status "}},
		{args: []string{"publish", "odd outbox", "--payload", "x"}},
		{args: []string{"enqueue", "odd queue", "x"}},
		{args: []string{"status"}, steps: []string{"dead list ", "dead list "}, first: dead},
		{args: []string{"doctor"}, steps: []string{"dead list "}},
		{args: []string{"dead", "show", "odd outbox", "--seq", "1"}, steps: []string{"dead discard "}},
		{args: []string{"dead", "show", "odd queue", "1"}, steps: []string{"dead retry "}},
		{args: []string{"dead", "show", "odd queue", "99"}, steps: []string{"dead list "}},
		{args: []string{"queue", "pause", "odd queue"}},
		{args: []string{"enqueue", "odd queue", "x"}},
		{args: []string{"status"}, steps: []string{"queue resume "}},
	} {
		if c.first != nil {
			c.first(t)
		}
		o := invoke(t, append(c.args, "--database-url", url)...)
		printed := printedSteps(t, o.stdout+"\n"+o.stderr)
		for _, step := range c.steps {
			i := slices.IndexFunc(printed, func(command []string) bool { return strings.HasPrefix(strings.Join(command, " ")+" ", step) })
			if i < 0 {
				t.Errorf("%v names no %q: %v\n%s%s", c.args, step, printed, o.stdout, o.stderr)
				continue
			}
			command := printed[i]
			printed = slices.Delete(printed, i, i+1)
			if slices.ContainsFunc(command, func(word string) bool {
				return word != "" && strings.ToUpper(word) == word && strings.Trim(word, "0123456789") != ""
			}) {
				if err := misused(command); err != nil { // it would not end, or needs a placeholder
					t.Errorf("%q: %v", command, err)
				}
				continue
			}
			if got := invoke(t, command...); got.code != terminal.ExitOK {
				t.Errorf("penstock %q ends with %d: %s", command, got.code, got.stderr)
			}
		}
	}
}

var shellWord = regexp.MustCompile(`'[^']*'|[^\s']+`)

// printedSteps are the commands in a text: the verb, its flags, and as many words as it needs.
func printedSteps(t *testing.T, text string) (all [][]string) {
	for line := range strings.Lines(strings.ReplaceAll(text, "\n          ", " ")) { // doctor wraps them
		for line != "" {
			at := named.FindStringSubmatchIndex(line)
			if at == nil {
				break
			}
			line = line[at[2]:]
			if command, is := printedAt(line); is {
				all = append(all, command)
			}
		}
	}
	return all
}

func printedAt(text string) (command []string, is bool) {
	cmd, verbs, value, words := tree(), true, false, 0
	for _, word := range shellWord.FindAllString(text, -1) {
		bare := strings.Trim(strings.TrimRight(word, ",;:)"), "'")
		sub, _, err := cmd.Find([]string{bare})
		switch {
		case verbs && err == nil && sub != cmd:
			cmd = sub
		case value:
			value = false
		case strings.HasPrefix(bare, "--"):
			name, _, given := strings.Cut(bare[2:], "=")
			flag := cmd.Flag(name)
			value, verbs = !given && flag != nil && flag.NoOptDefVal == "" && flag.Value.Type() != "bool", false
		case !verbs && cmd.ValidateArgs(make([]string, words)) != nil || verbs && cmd.ValidateArgs(nil) != nil, strings.Trim(bare, "0123456789") == "" && cmd.ValidateArgs(make([]string, words+1)) == nil: // or one more id
			words, verbs = words+1, false
		default:
			return command, len(command) > 0
		}
		command = append(command, bare)
		if strings.TrimRight(word, ",;:)") != word {
			break
		}
	}
	return command, len(command) > 0
}
