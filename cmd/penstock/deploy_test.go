package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	goyaml "github.com/goccy/go-yaml"

	"github.com/penstock/penstock/config"
	"github.com/penstock/penstock/internal/cli"
)

// deployed are the command lines in a file of deploy, by what runs them.
func deployed(t *testing.T, path string, text []byte) map[string][]string {
	all := map[string][]string{}
	if strings.HasSuffix(path, ".service") {
		for _, m := range regexp.MustCompile(`(?m)^ExecStart=/usr/bin/penstock (.*)$`).FindAllSubmatch(text, -1) {
			all["ExecStart"] = strings.Fields(regexp.MustCompile(`\$\{\w+\}|%i`).ReplaceAllString(string(m[1]), "x"))
		}
		return all
	}
	for docs := goyaml.NewDecoder(bytes.NewReader(text)); ; {
		var doc struct {
			Kind     string
			Services map[string]struct {
				Image   string
				Command []string
			}
			Data map[string]string
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct{ Args []string }
					}
				}
			}
		}
		switch err := docs.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatalf("%s: %v", path, err)
		}
		for name, s := range doc.Services {
			if s.Image == "penstock" {
				all[name] = s.Command
			}
		}
		for _, c := range doc.Spec.Template.Spec.Containers {
			all[doc.Kind] = c.Args
		}
		if doc.Kind == "ConfigMap" {
			env := func(name string) (string, bool) {
				return map[string]string{"PENSTOCK_DATABASE_URL": "postgres://db/shop", "PENSTOCK_SINK_URL": "amqp://broker/"}[name], true
			}
			if _, err := (config.Loader{LookupEnv: env}).LoadBytes(path, []byte(doc.Data["penstock.yaml"])); err != nil {
				t.Errorf("%s: its configuration: %v", path, err)
			}
		}
	}
}

// Every command line in deploy is one of this program's, with flags that it has, and the configuration there is one.
func TestDeployedCommands(t *testing.T) {
	files, err := filepath.Glob("../../deploy/[cks]*/*")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for by, args := range deployed(t, path, text) {
			commands++
			verb, rest, err := rootCommand(cli.New(strings.NewReader(""), io.Discard, io.Discard)).Find(args)
			if err == nil {
				err = verb.ParseFlags(rest)
			}
			if err == nil {
				err = verb.ValidateArgs(verb.Flags().Args())
			}
			if err != nil || !verb.Runnable() {
				t.Errorf("%s: %s: penstock %s: %v", path, by, strings.Join(args, " "), err)
			}
		}
	}
	if commands < 7 {
		t.Errorf("only %d commands were found", commands)
	}
}
