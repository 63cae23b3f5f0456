package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Program, clients, packages and chart have one version, wherever it is written.
func TestVersions(t *testing.T) {
	places := 0
	for glob, pattern := range map[string]string{
		"clients/python/pyproject.toml":                                 `(?m)^version = "(.*)"|penstock-server==([^"]*)"`,
		"clients/python/src/penstock/__init__.py":                       `__version__ = "(.*)"`,
		"clients/python/README.md":                                      `penstock_client-([\d.]+)-py3`,
		"clients/typescript/package.json":                               `(?m)^  "version": "(.*)"`,
		"clients/typescript/package-lock.json":                          `"name": "@penstock/client",\s+"version": "(.*)"`,
		"clients/typescript/src/errors.ts":                              `clientVersion = '(.*)'`,
		"clients/java/penstock/src/main/java/io/penstock/Penstock.java": ` VERSION = "(.*)"`,
		"clients/typescript/README.md":                                  `penstock-client-([\d.]+)\.tgz`,
		"clients/java/pom.xml":                                          `(?s)<artifactId>penstock-parent</artifactId>\s+<version>(.*?)</version>`,
		"clients/java/[pcs]*/pom.xml":                                   `(?s)<artifactId>penstock-parent</artifactId>\s+<version>(.*?)</version>`,
		"clients/java/README.md":                                        `penstock-([\d.]+)\.jar|<version>([\d.]+)</version>`,
		"clients/java/conformance/src/main/java/io/*/*/Program.java":    `"version", "(.*?)"`,
		"clients/go/main.go":                                            `Version: "(.*?)"`,
		"release/python/pyproject.toml":                                 `(?m)^version = "(.*)"`,
		"release/npm/platform.json":                                     `"version": "(.*)"`,
		"release/npm/server/package.json":                               `"version": "(.*)"|"@penstock/server-.*": "(.*)"`,
		"deploy/helm/penstock/Chart.yaml":                               `(?m)^(?:version|appVersion): (.*)$`,
		"deploy/kubernetes/penstock.yaml":                               `image: "penstock:(.*)"|app.kubernetes.io/version: "(.*)"`,
		"docs/start/install.md":                                         `penstock(?:_client|_server|-client|-server|-server-linux-x64|-spring-boot-starter)?[-_:](\d+\.\d+\.\d+)`,
		"CHANGELOG.md":                                                  `(?s)\n## (\S+).*`,
	} {
		files, err := filepath.Glob("../../" + glob)
		if err != nil || len(files) == 0 {
			t.Errorf("%s: %v, %v", glob, files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
			if len(found) == 0 {
				t.Errorf("%s: no version", file)
			}
			for _, m := range found {
				places++
				if v := strings.Join(m[1:], ""); v != version {
					t.Errorf("%s has version %s, the program has %s", strings.TrimPrefix(file, "../../"), v, version)
				}
			}
		}
	}
	t.Logf("%d places", places)
}
