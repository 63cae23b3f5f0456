package main

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	goyaml "github.com/goccy/go-yaml"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/metrics"
)

// deployed are the command lines in a file of deploy, by the program that runs them.
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
			Metadata struct{ Name string }
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
			all[doc.Metadata.Name] = c.Args
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

// Every command line in deploy is a valid command of this program, and the configuration there is valid.
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
	if commands < 10 {
		t.Errorf("only %d commands were found", commands)
	}
}

// The manifests probe the program's address. The budget covers the right pods and lets nodes be drained.
func TestProbesAndDisruptionBudget(t *testing.T) {
	file, err := os.Open("../../deploy/kubernetes/penstock.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	type probe struct {
		HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
	}
	type selector struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	var deployment, budget struct {
		Kind     string
		Metadata struct{ Name string }
		Spec     struct {
			Replicas     int
			MinAvailable int `yaml:"minAvailable"`
			Selector     selector
			Template     struct {
				Metadata struct{ Labels map[string]string }
				Spec     struct {
					Containers []struct {
						Args      []string
						Ports     []struct{ Name, ContainerPort string }
						Liveness  probe `yaml:"livenessProbe"`
						Readiness probe `yaml:"readinessProbe"`
					}
				}
			}
		}
	}
	for docs := goyaml.NewDecoder(file); ; {
		doc := deployment
		doc.Kind = ""
		if err := docs.Decode(&doc); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		switch doc.Kind + " " + doc.Metadata.Name {
		case "Deployment penstock-relay":
			deployment = doc
		case "PodDisruptionBudget penstock-relay":
			budget = doc
		}
	}
	if len(deployment.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("the deployment is %+v", deployment)
	}
	relay := deployment.Spec.Template.Spec.Containers[0]
	if len(relay.Ports) != 1 || !strings.Contains(strings.Join(relay.Args, " "), "--metrics-listen 0.0.0.0:"+relay.Ports[0].ContainerPort) {
		t.Fatalf("what is probed is not what is served: %+v", relay)
	}
	served := httptest.NewServer(metrics.New(metrics.Options{}).Handler())
	defer served.Close()
	for path, p := range map[string]probe{"/healthz": relay.Liveness, "/readyz": relay.Readiness} {
		if code, text := get(t, served.URL+p.HTTPGet.Path, ""); p.HTTPGet.Path != path || code != http.StatusOK || p.HTTPGet.Port != relay.Ports[0].Name {
			t.Errorf("%s is asked at %+v: %d %s", path, p, code, text)
		}
	}
	labels := deployment.Spec.Template.Metadata.Labels
	if of := budget.Spec.Selector.MatchLabels; len(of) == 0 || !maps.Equal(of, labels) || !maps.Equal(deployment.Spec.Selector.MatchLabels, labels) {
		t.Errorf("the budget is of %v, the pods are %v", of, labels)
	}
	if least := budget.Spec.MinAvailable; least < 1 || least >= deployment.Spec.Replicas {
		t.Errorf("of %d pods %d have to stay", deployment.Spec.Replicas, least)
	}
}
