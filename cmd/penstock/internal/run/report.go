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

// reportEvery is how often is looked whether a command that runs has said how far it is.
const reportEvery = time.Second

// reportFile is where a command says how far it is, or what came of its job: PENSTOCK_JOB_REPORT names it.
type reportFile struct {
	path string
	log  *slog.Logger
	seen os.FileInfo // of what was reported last
}

// reportFor names a file for a job, which the command makes if it has something to say.
func (e *execution) reportFor(job *penstock.Job) *reportFile {
	return &reportFile{path: filepath.Join(e.reports, fmt.Sprintf("%d-%d.json", job.ID, job.Attempt)), log: e.log.With("job", job.ID)}
}

// during reports what stands there now and then, until it is told that the command has ended. Text that is not JSON is not
// complete yet.
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

// last reports what stands there at the end, what is not JSON as a text, and removes it.
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

// read returns what stands there and is not reported yet. Only a file is read: another thing may keep its reader waiting.
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

// report does not fail the job: what it has to do is done.
func (f *reportFile) report(ctx context.Context, text []byte) {
	if err := work.Report(ctx, json.RawMessage(text)); err != nil && ctx.Err() == nil && !errors.Is(err, penstock.ErrLeaseLost) {
		f.log.Warn("a report is not kept", "err", err)
	}
}
