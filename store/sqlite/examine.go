package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/doctor"
)

var _ doctor.Examiner = (*Store)(nil)

// Limits from which on there is a finding about the file. A log of this size is not written back because
// a connection reads for long.
const (
	largeLog      = 1 << 30
	muchFree      = 256 << 20
	checkPatience = 3 * time.Second
)

// Examine implements doctor.Examiner: the file, its journal, its writers, and its integrity.
func (s *Store) Examine(ctx context.Context, o doctor.Options) (doctor.Examined, error) {
	o.SetDefaults()
	e := doctor.Examined{Free: -1}
	add := func(check string, severity doctor.Severity, found, why, next string, measured ...doctor.Figure) {
		e.Findings = append(e.Findings, doctor.Finding{Check: check, Severity: severity, About: s.path, Found: found, Why: why, Next: next, Measured: measured})
	}
	if err := s.guard.Check(ctx); err != nil {
		if _, is := resultCode(err); is || s.guard.Closed.Load() {
			return e, err
		}
		f := doctor.BadSchema(err)
		f.About = s.path
		e.Findings = append(e.Findings, f)
		return e, nil
	}
	started := time.Now()
	var version, journal string
	var pages, free, size int64
	if err := s.readers.QueryRowContext(ctx, "select sqlite_version(), (select journal_mode from pragma_journal_mode), page_count, freelist_count, page_size from pragma_page_count, pragma_freelist_count, pragma_page_size").
		Scan(&version, &journal, &pages, &free, &size); err != nil {
		return e, s.explain(err)
	}
	took := time.Since(started)
	add(doctor.CheckConnection, doctor.OK, fmt.Sprintf("SQLite %s answers in %v", version, took.Round(10*time.Microsecond)), "", "", doctor.Figure{Name: "round trip", Value: took.Seconds(), Unit: "s"})
	add(doctor.CheckSchema, doctor.OK, fmt.Sprintf("version %d", newestVersion()), "", "")
	log := doctor.Figure{Name: "log", Unit: "bytes"}
	if info, err := os.Stat(s.path + "-wal"); err == nil {
		log.Value = float64(info.Size())
	}
	switch {
	case journal != "wal":
		add(doctor.CheckJournal, doctor.Warning, "the journal mode is "+journal, "readers and writers wait for each other", "pragma journal_mode = wal, once, in whatever has changed it")
	case log.Value >= largeLog:
		add(doctor.CheckJournal, doctor.Warning, fmt.Sprintf("the write-ahead log has %d MiB", int64(log.Value)>>20), "it is written back only when no connection reads an old state of the file",
			"end the program that keeps a read transaction open", log)
	default:
		add(doctor.CheckJournal, doctor.OK, fmt.Sprintf("write-ahead log of %d KiB", int64(log.Value)>>10), "", "", log)
	}
	figures := []doctor.Figure{{Name: "size", Value: float64(pages * size), Unit: "bytes"}, {Name: "free pages", Value: float64(free * size), Unit: "bytes"}}
	if free*size >= muchFree && free*2 > pages {
		add(doctor.CheckFile, doctor.Warning, fmt.Sprintf("%d of %d MiB of the file are free pages", free*size>>20, pages*size>>20), "SQLite uses them again, but does not give them back", "if the file should be small: vacuum, while nothing else runs", figures...)
	} else {
		add(doctor.CheckFile, doctor.OK, fmt.Sprintf("%d KiB, of which %d KiB are free pages", pages*size>>10, free*size>>10), "", "", figures...)
	}
	if err := s.writable(ctx, o.LockPatience); isBusy(err) {
		add(doctor.CheckLock, doctor.Critical, fmt.Sprintf("another program has been writing for more than %v", o.LockPatience), "a file has one writer at a time: relays, workers and producers wait for it, and give up",
			"find the program that keeps a write transaction open, and end it: fuser "+s.path)
	} else if err != nil {
		return e, s.explain(err)
	} else {
		add(doctor.CheckLock, doctor.OK, "no connection keeps others from writing", "", "")
	}
	e.Findings = append(e.Findings, s.integrity(ctx))
	disk, left := doctor.Disk(s.path)
	e.Findings, e.Free = append(e.Findings, disk), left
	return e, nil
}

// writable takes the lock of the file, and gives it back.
func (s *Store) writable(ctx context.Context, patience time.Duration) error {
	conn, err := s.writer.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	tx, err := begin(ctx, conn, patience)
	if err != nil {
		return err
	}
	return tx.Rollback()
}

// integrity looks for damage, for a few seconds.
func (s *Store) integrity(ctx context.Context) doctor.Finding {
	f := doctor.Finding{Check: doctor.CheckIntegrity, Severity: doctor.OK, About: s.path, Found: "quick_check finds no damage"}
	within, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	var said string
	switch err := s.readers.QueryRowContext(within, "pragma quick_check(1)").Scan(&said); {
	case within.Err() != nil:
		f.Found = fmt.Sprintf("quick_check found no damage in %v, and was not done then", checkPatience)
	case err != nil:
		f.Severity, f.Found = doctor.Critical, s.explain(err).Error()
	case said != "ok":
		f.Severity, f.Found = doctor.Critical, "the file is damaged: "+said
	}
	if f.Severity == doctor.Critical {
		f.Next = "stop all programs that use the file, copy it, and restore it from a backup or with sqlite3's .recover"
	}
	return f
}

// Running implements doctor.Examiner.
func (s *Store) Running(ctx context.Context, queue string, most int) (all []doctor.Running, err error) {
	if err := admin.ValidateLimit(most); err != nil {
		return nil, err
	}
	err = s.read(ctx, func(ctx context.Context, tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, statement("running"), queue, most)
		if err != nil {
			return err
		}
		now := time.Now()
		for rows.Next() {
			var r doctor.Running
			var until int64
			var report *string
			if err := rows.Scan(&r.Queue, &r.ID, &r.Lease, &r.Worker, &r.Attempt, &until, &report); err != nil {
				return errors.Join(err, rows.Close())
			}
			if report != nil {
				r.Report = []byte(*report)
			}
			r.Expired, r.Held = now.Sub(time.UnixMicro(until)), max(now.Sub(time.UnixMicro(r.Lease)), 1)
			all = append(all, r)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
		for i := range all {
			var created int64
			if err := tx.QueryRowContext(ctx, onQueue(all[i].Queue, "select coalesce(id, seq), created_at from {table} where seq = ?"), all[i].ID).Scan(&all[i].ID, &created); err != nil {
				return err
			}
			all[i].Age = max(now.Sub(time.UnixMilli(created)), 0)
		}
		return nil
	})
	return all, err
}
