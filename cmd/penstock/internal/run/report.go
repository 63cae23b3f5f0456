package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/work"
)

// reportEvery is how often the report of a running command is checked.
const reportEvery = time.Second

// reportFile is where a command writes its progress or its result: PENSTOCK_JOB_REPORT names it.
type reportFile struct {
	path string
	log  *slog.Logger
	seen os.FileInfo // of the last report
}

// reportFor names a file for a job. It has the report of an earlier attempt, or the command creates it if it has something to report.
func (e *execution) reportFor(job *penstock.Job) *reportFile {
	f := &reportFile{path: filepath.Join(e.reports, fmt.Sprintf("%d-%d.json", job.ID, job.Attempt)), log: e.log.With("job", job.ID)}
	if job.Report != nil {
		err := os.WriteFile(f.path, job.Report, 0o600)
		if err == nil {
			f.seen, err = os.Lstat(f.path)
		}
		if err != nil {
			f.log.Warn("a command does not have the report of an earlier attempt", "err", err)
		}
	}
	return f
}

// during reports the file's contents at intervals, until the command has ended. Text that is not JSON is not complete yet.
func (f *reportFile) during(ctx context.Context) (ended func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(reportEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if text := f.read(); json.Valid(text) {
				f.report(ctx, text)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// last reports the file's contents at the end, as a text if they are not JSON, and removes it.
func (f *reportFile) last(ctx context.Context) {
	defer func() { _ = os.Remove(f.path) }()
	text := f.read()
	if len(text) == 0 || ctx.Err() != nil {
		return
	}
	if !json.Valid(text) {
		text, _ = json.Marshal(strings.TrimSpace(strings.ToValidUTF8(string(text), "\uFFFD")))
	}
	f.report(ctx, text)
}

// read returns contents that are not reported yet. It reads only a file: another object may make its reader wait.
func (f *reportFile) read() []byte {
	info, err := os.Lstat(f.path)
	if err != nil || !info.Mode().IsRegular() || f.seen != nil && os.SameFile(f.seen, info) && f.seen.Size() == info.Size() && f.seen.ModTime().Equal(info.ModTime()) {
		return nil
	}
	file, err := os.Open(f.path)
	if err != nil {
		f.log.Warn("a report cannot be read", "err", err)
		return nil
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, penstock.MaxReportBytes+1))
	if f.seen = info; err != nil || len(text) > penstock.MaxReportBytes {
		f.log.Warn("a report cannot be used", "err", err, "bytes", info.Size(), "most", penstock.MaxReportBytes)
		return nil
	}
	return text
}

// report does not fail the job, whose own work is done.
func (f *reportFile) report(ctx context.Context, text []byte) {
	if err := work.Report(ctx, json.RawMessage(text)); err != nil && ctx.Err() == nil && !errors.Is(err, penstock.ErrLeaseLost) {
		f.log.Warn("a report is not kept", "err", err)
	}
}
