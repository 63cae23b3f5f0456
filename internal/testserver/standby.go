package testserver

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// standbyName is how a standby is known to its primary.
const standbyName = "penstock_standby"

// NewStandby copies p, while it runs, to a server that follows it, and has p
// wait for it: once NewStandby returns, a commit is acknowledged when the
// standby has it too.
func (p *Postgres) NewStandby() (*Postgres, error) {
	u, err := url.Parse(p.URL)
	if err != nil {
		return nil, err
	}
	standby, err := newPostgres(func(s *Postgres, who *syscall.Credential, port int) error {
		from := fmt.Sprintf("host=127.0.0.1 port=%s user=postgres application_name=%s", u.Port(), standbyName)
		backup := s.as(who, filepath.Join(s.Bin, "pg_basebackup"), "-d", from, "-D", s.data(), "-R", "-X", "stream", "-c", "fast", "--no-sync")
		if out, err := backup.CombinedOutput(); err != nil {
			return fmt.Errorf("pg_basebackup: %w\n%s", err, bytes.TrimSpace(out))
		}
		return appendFile(filepath.Join(s.data(), "postgresql.conf"), []string{fmt.Sprintf("port = %d", port)})
	})
	if err != nil {
		return nil, err
	}
	if err := p.awaitStandby(); err != nil {
		standby.Close()
		return nil, err
	}
	return standby, nil
}

// awaitStandby makes commits wait for the standby and returns when they do.
func (p *Postgres) awaitStandby() error {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.URL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, sql := range []string{"alter system set synchronous_standby_names = '" + standbyName + "'", "select pg_reload_conf()"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var follows bool
		err := conn.QueryRow(ctx, "select exists (select from pg_stat_replication where application_name = $1 and sync_state = 'sync')", standbyName).Scan(&follows)
		if err != nil || follows {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the standby does not follow: %w", ctx.Err())
		}
	}
}

// Promote makes a standby the primary and returns when it takes writes.
func (p *Postgres) Promote() error { return execute(p.URL, "select pg_promote(wait => true)") }
