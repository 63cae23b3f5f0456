package config_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
)

// Every mistake of a file is reported at once, with its line and a correction.
func ExampleLoader_Load() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "penstock.yaml")
	if err := os.WriteFile(file, []byte("database_url: sqlite:shop.db\nsubscriptions:\n  - {name: billing, outbox: orders, sink: stdout}\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	cfg, err := config.Loader{}.Load(file)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range cfg.Subscriptions {
		fmt.Println(s.Name, "of", s.Outbox)
	}
	// Output:
	// billing of orders
}
