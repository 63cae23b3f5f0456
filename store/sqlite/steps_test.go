package sqlite_test

import (
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// counted are the steps of SQLite's virtual machine that the statements of all connections to a file took, by the file's name.
// They are SQLite's own count, so the same statements on the same rows take the same steps.
var counted = struct {
	sync.Mutex
	steps map[string]int64
}{steps: map[string]int64{}}

// countSteps has each connection that is opened from then on counted.
var countSteps = sync.OnceFunc(func() {
	sqlite3.Xsqlite3_auto_extension(libc.NewTLS(), pointer(func(tls *libc.TLS, db, _, _ uintptr) int32 {
		return sqlite3.Xsqlite3_trace_v2(tls, db, sqlite3.SQLITE_TRACE_PROFILE, pointer(ended), db)
	}))
})

// ended is what SQLite calls when a statement has ended.
func ended(tls *libc.TLS, _ uint32, db, statement, _ uintptr) int32 {
	file := libc.GoString(sqlite3.Xsqlite3_db_filename(tls, db, 0))
	steps := sqlite3.Xsqlite3_stmt_status(tls, statement, sqlite3.SQLITE_STMTSTATUS_VM_STEP, 1)
	counted.Lock()
	defer counted.Unlock()
	counted.steps[file] += int64(steps)
	return 0
}

// pointer is a function as the translated SQLite calls it.
func pointer[F any](f F) uintptr {
	held := &struct{ f F }{f}
	return *(*uintptr)(unsafe.Pointer(held))
}

// stepsOf is how many steps the statements on a file took. The file's connections were opened after countSteps.
func stepsOf(t testing.TB, file string) float64 {
	t.Helper()
	file, err := filepath.EvalSymlinks(file)
	if err != nil {
		t.Fatal(err)
	}
	counted.Lock()
	defer counted.Unlock()
	return float64(counted.steps[file])
}
