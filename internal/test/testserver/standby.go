package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// standbyName is how a standby is known to its primary.
const standbyName = "penstock_standby"

// NewStandby copies p, while it runs, to a server that follows it, and makes p wait for it. Once
// NewStandby returns, a commit is acknowledged when the standby has it too.
func (p *Postgres) NewStandby() (*Postgres, error) {
	u, err := url.Parse(p.URL)
	if err != nil {
		return nil, err
	}
	standby, err := p.follower(u.Host)
	if err != nil {
		return nil, err
	}
	if err := p.awaitStandby("sync", "alter system set synchronous_standby_names = '"+standbyName+"'", "select pg_reload_conf()"); err != nil {
		standby.Close()
		return nil, err
	}
	return standby, nil
}

// NewAsyncStandby is NewStandby with a primary that does not wait for it. The standby reaches it at
// the address via, a proxy's for instance: while that lets nothing through, the standby falls
// behind, and a promotion loses the rest. Once NewAsyncStandby returns the standby has all that was
// committed before.
func (p *Postgres) NewAsyncStandby(via string) (*Postgres, error) {
	standby, err := p.follower(via)
	if err != nil {
		return nil, err
	}
	if err := p.AwaitAsyncStandby(); err != nil {
		standby.Close()
		return nil, err
	}
	return standby, nil
}

// AwaitAsyncStandby returns when p's standby has all that was committed before.
func (p *Postgres) AwaitAsyncStandby() error { return p.awaitStandby("async") }

// follower starts a copy of p that follows it through the address via.
func (p *Postgres) follower(via string) (*Postgres, error) {
	host, port, err := net.SplitHostPort(via)
	if err != nil {
		return nil, err
	}
	return newPostgres(p.clock, func(s *Postgres, who *syscall.Credential, own int) error {
		from := fmt.Sprintf("host=%s port=%s user=postgres application_name=%s", host, port, standbyName)
		// Again, as in awaitStandby: p may be recovering from a backend that crashed.
		for deadline := time.Now().Add(startPatience); ; time.Sleep(200 * time.Millisecond) {
			backup := s.as(who, filepath.Join(s.Bin, "pg_basebackup"), "-d", from, "-D", s.data(), "-R", "-X", "stream", "-c", "fast", "--no-sync")
			out, err := backup.CombinedOutput()
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("pg_basebackup: %w\n%s", err, bytes.TrimSpace(out))
			}
		}
		return appendFile(filepath.Join(s.data(), "postgresql.conf"), []string{fmt.Sprintf("port = %d", own)})
	})
}

// awaitStandby runs the statements and returns when the standby follows in the
// given state and has all that was written until then. It continues while p recovers.
func (p *Postgres) awaitStandby(state string, statements ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var written string
	for {
		follows, err := p.standbyFollows(ctx, state, &written, statements)
		if follows {
			return nil
		}
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok && !strings.HasPrefix(refused.Code, "57P") {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the standby does not follow: %w", ctx.Err()), err)
		}
	}
}

// standbyFollows looks once. It notes in written what has to have come, if nothing is
// noted yet.
func (p *Postgres) standbyFollows(ctx context.Context, state string, written *string, statements []string) (bool, error) {
	conn, err := pgx.Connect(ctx, p.URL)
	if err != nil {
		return false, err
	}
	defer conn.Close(ctx)
	if *written == "" {
		for _, sql := range statements {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return false, err
			}
		}
		if err := conn.QueryRow(ctx, "select pg_current_wal_lsn()::text").Scan(written); err != nil {
			return false, err
		}
	}
	var follows bool
	err = conn.QueryRow(ctx, `select exists (select from pg_stat_replication
		where application_name = $1 and sync_state = $2 and flush_lsn >= $3::pg_lsn)`, standbyName, state, *written).Scan(&follows)
	return follows, err
}

// Promote makes a standby the primary and returns when it takes writes.
func (p *Postgres) Promote() error { return execute(p.URL, "select pg_promote(wait => true)") }
