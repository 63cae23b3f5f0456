package postgrestest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/testserver"
)

// SmallDisk is an empty database, on a separate server, whose tables lie on a disk of 32 MiB, and where that is mounted. The
// write-ahead log lies elsewhere. The test is skipped where nothing can be mounted.
func SmallDisk(t *testing.T) (url, dir string) {
	server := testserver.StartPostgres(t)
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	var data string
	if err := conn.QueryRow(ctx, "show data_directory").Scan(&data); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(filepath.Dir(data), "small")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=32m", "penstock-test", dir).CombinedOutput(); err != nil {
		t.Skipf("no small disk can be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "--lazy", dir).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	if out, err := exec.Command("chown", "--reference", data, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, sql := range []string{"create tablespace small location '" + dir + "'", "create database small tablespace small"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Replace(server.URL, "/postgres?", "/small?", 1), dir
}

// Ballast makes a file of that many bytes on a small disk; 0 means all free bytes.
func Ballast(dir, name string, size int) (path string, err error) {
	path = filepath.Join(dir, name)
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	block := make([]byte, 4096)
	for n := 0; err == nil && (size == 0 || n < size); n += len(block) {
		_, err = file.Write(block)
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = nil
	}
	return path, errors.Join(err, file.Close())
}
