package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/penstock/penstock/store/sqlite"
)

// killedWriterCommand makes this program a process that writes messages and never commits.
const killedWriterCommand = "write-until-killed"

// killSQLiteWriter kills a process in its transaction, which has spilled pages into the write-ahead log. A message of it that arrives is a phantom.
func (r *rig) killSQLiteWriter(ctx context.Context, random *rand.Rand, struck func()) (bool, error) {
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	writer := exec.Command(self, killedWriterCommand, strings.TrimPrefix(r.database, "sqlite:"))
	if err := writer.Start(); err != nil {
		return false, err
	}
	sleep(ctx, between(random, 50*time.Millisecond, lease/2))
	if err := writer.Process.Kill(); err != nil {
		return false, err
	}
	struck()
	return writer.Wait() != nil, nil
}

// writeUntilKilled writes in one transaction until the process is killed.
func writeUntilKilled(file string) error {
	db, err := sqlite.OpenDB(file)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, statement := range []string{"pragma cache_size = 10", "begin immediate"} {
		if _, err := db.Exec(statement); err != nil {
			return err
		}
	}
	for n := 0; ; n++ {
		if _, err := db.Exec("insert into penstock_outbox_shop (id, key, topic, payload) values (?, ?, ?, randomblob(5000))", fmt.Sprintf("killed-%d-%d", os.Getpid(), n), quickKeys[n%len(quickKeys)], topicPlaced); err != nil {
			return err
		}
	}
}
