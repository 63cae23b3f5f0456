package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/retry"
	"github.com/penstock/penstock/internal/shell"
)

var (
	_ driver.Queue        = (*Queue)(nil)
	_ driver.Releaser     = (*Queue)(nil)
	_ driver.AckClaimer   = (*Queue)(nil)
	_ driver.GroupFinder  = (*Queue)(nil)
	_ driver.GroupClaimer = (*Queue)(nil)
	_ driver.Reporter     = (*Queue)(nil)
	_ driver.RoleJudge    = (*Queue)(nil)
)

// DriverQueue implements driver.QueueStore.
func (s *Store) DriverQueue(name string) driver.Queue { return s.Queue(name) }

// Enqueue writes jobs in a separate transaction, which runs again after a conflict with another one. An enqueuer's privileges are
// enough.
func (q *Queue) Enqueue(ctx context.Context, jobs ...penstock.NewJob) (made []penstock.Enqueued, err error) {
	if err := validJobs(jobs); err != nil {
		return nil, err
	}
	err = retry.Few(ctx, func() (err error) {
		made, err = q.write(ctx, q.store.pool, jobs)
		return err
	})
	return made, q.failed(ctx, err)
}

// Claim implements driver.Queue.
func (q *Queue) Claim(ctx context.Context, c driver.Claim) ([]penstock.Job, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	_, jobs, err := q.AckClaim(ctx, nil, c)
	return jobs, err
}

// AckClaim implements driver.AckClaimer.
func (q *Queue) AckClaim(ctx context.Context, acks []int64, c driver.Claim) (acked []int64, jobs []penstock.Job, err error) {
	if err := c.Validate(); err != nil {
		return nil, nil, err
	}
	rows, _ := q.store.pool.Query(ctx, q.claim, binaryResults, c.Jobs, atLeastOne(c.Lease), c.Group, c.Worker, acks)
	return q.claimed(ctx, rows, c.Jobs, len(acks))
}

// AckClaimGroups implements driver.GroupClaimer. The acks go with the first group: the claims of those behind it see these jobs gone.
func (q *Queue) AckClaimGroups(ctx context.Context, acks []int64, groups []string, c driver.Claim) (acked []int64, jobs []penstock.Job, err error) {
	most := 0
	var names []string
	var shares []int
	for _, group := range groups {
		if len(names) == 0 || names[len(names)-1] != group {
			names, shares = append(names, group), append(shares, 0)
			c.Group = group
			if err := c.Validate(); err != nil {
				return nil, nil, err
			}
		}
		shares[len(shares)-1] += c.Jobs
		most += c.Jobs
	}
	rows, _ := q.store.pool.Query(ctx, q.claimGroups, binaryResults, shares, atLeastOne(c.Lease), names, c.Worker, acks)
	return q.claimed(ctx, rows, most, len(acks))
}

// claimed reads the answer of a claim.
func (q *Queue) claimed(ctx context.Context, rows pgx.Rows, most, acks int) (acked []int64, jobs []penstock.Job, err error) {
	jobs, acked, err = collectJobs(rows, most, acks)
	if err != nil { // the rows that came may be half of it, and the call may not have been committed
		return nil, nil, q.failed(ctx, err)
	}
	return acked, jobs, nil
}

// ReadyGroups implements driver.GroupFinder. It probes an index a few times for each group that jobs were taken
// from. The number of jobs does not matter.
func (q *Queue) ReadyGroups(ctx context.Context, groups []string, behind string, most int) ([]string, error) {
	if err := admin.ValidateLimit(most); err != nil {
		return nil, err
	}
	if len(groups) == 0 {
		groups = nil
	}
	found, err := list(ctx, q.store.pool, pgx.RowTo[string], q.ready, groups, behind, most)
	return found, q.failed(ctx, err)
}

// Extend implements driver.Queue.
func (q *Queue) Extend(ctx context.Context, lease time.Duration, leases ...int64) ([]int64, error) {
	if err := driver.ValidateLease(lease); err != nil {
		return nil, err
	}
	return q.settle(ctx, q.extend, leases, q.name, leases, atLeastOne(lease))
}

// Ack implements driver.Queue.
func (q *Queue) Ack(ctx context.Context, leases ...int64) ([]int64, error) {
	return q.settle(ctx, q.ack, leases, leases)
}

// Release implements driver.Releaser. In a FIFO a job goes to the end of its group
// and priority; among those of its key it keeps its place.
func (q *Queue) Release(ctx context.Context, after time.Duration, leases ...int64) ([]int64, error) {
	return q.settle(ctx, q.release, leases, q.name, leases, after)
}

// settle calls a function that returns those of the leases that were held.
func (q *Queue) settle(ctx context.Context, sql string, leases []int64, args ...any) ([]int64, error) {
	if len(leases) == 0 {
		return nil, nil
	}
	rows, _ := q.store.pool.Query(ctx, sql, append([]any{binaryResults}, args...)...)
	held, err := collectIDs(rows, len(leases))
	if err != nil {
		return nil, q.failed(ctx, err)
	}
	return held, nil
}

// Retry implements driver.Queue.
func (q *Queue) Retry(ctx context.Context, lease int64, after time.Duration, reason string) (dead bool, err error) {
	var pause *time.Duration // nil: the queue's own backoff
	if after >= 0 {
		pause = &after
	}
	var again bool
	err = withReason(reason, func(text string) error {
		return q.store.pool.QueryRow(ctx, q.retry, q.name, lease, pause, text).Scan(&again)
	})
	return !again && err == nil, q.failed(ctx, err)
}

// DeadLetter implements driver.Queue.
func (q *Queue) DeadLetter(ctx context.Context, lease int64, reason string) error {
	return q.failed(ctx, withReason(reason, func(text string) error {
		_, err := q.store.pool.Exec(ctx, q.deadLetter, q.name, lease, text)
		return err
	}))
}

// Report implements driver.Reporter. A job that was claimed together with others gets a separate row for it.
func (q *Queue) Report(ctx context.Context, lease int64, report []byte) error {
	return q.reportOn(ctx, q.store.pool, lease, report)
}

// Reporter is the queue's Report within a transaction: it takes effect if tx commits. work.StepTx takes it. Until tx ends, the lease can neither be
// extended nor ended, so report last.
func (q *Queue) Reporter(tx pgx.Tx) driver.Reporter { return reporterTx{q, tx} }

type reporterTx struct {
	q  *Queue
	tx pgx.Tx
}

func (r reporterTx) Report(ctx context.Context, lease int64, report []byte) error {
	return r.q.reportOn(ctx, r.tx, lease, report)
}

// ReporterSQL is Reporter for database/sql.
func (q *Queue) ReporterSQL(tx SQLTx) driver.Reporter { return reporterSQL{q, tx} }

type reporterSQL struct {
	q  *Queue
	tx SQLTx
}

func (r reporterSQL) Report(ctx context.Context, lease int64, report []byte) error {
	if err := validReport(report); err != nil {
		return err
	}
	_, err := r.tx.ExecContext(ctx, r.q.report, r.q.name, lease, string(report))
	return r.q.failed(ctx, err)
}

func (q *Queue) reportOn(ctx context.Context, on querier, lease int64, report []byte) error {
	if err := validReport(report); err != nil {
		return err
	}
	_, err := on.Exec(ctx, q.report, q.name, lease, report)
	return q.failed(ctx, err)
}

func validReport(report []byte) error {
	if len(report) > penstock.MaxReportBytes {
		return &penstock.FieldError{Field: "report", Problem: fmt.Sprintf("has %d bytes, the limit is %d", len(report), penstock.MaxReportBytes), Hint: "store it elsewhere and report a reference"}
	}
	if !json.Valid(report) { // none at all would take back the report before
		return &penstock.FieldError{Field: "report", Problem: "is not valid JSON", Hint: "write a number, a text in quotes, or an object"}
	}
	return nil
}

// Maintain implements driver.Queue.
func (q *Queue) Maintain(ctx context.Context) error {
	_, err := q.store.pool.Exec(ctx, q.maintain, q.name)
	return q.failed(ctx, err)
}

func (q *Queue) failed(ctx context.Context, err error) error {
	var field *penstock.FieldError
	if err == nil || errors.As(err, &field) {
		return err
	}
	return lacks(q.store.queueError(ctx, q.name, err), granted("penstock queue grant "+shell.Word(q.name)+" ROLE --work"))
}

// RefusesRole implements driver.RoleJudge.
func (q *Queue) RefusesRole(err error) bool { return pgerror.IsForbidden(err) }

// atLeastOne rounds up to the least interval.
func atLeastOne(d time.Duration) time.Duration { return max(d, time.Microsecond) }

// withReason calls fn with a text that the database can hold.
func withReason(reason string, fn func(text string) error) error {
	text := storable(reason)
	err := fn(text)
	if sqlState(err) == pgerror.NoSuchCharacter {
		err = fn(pgerror.ASCII(text))
	}
	return err
}

// storable replaces characters that text in the database cannot hold.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Dequeue takes up to n jobs (1 to driver.MaxClaim) of a group within tx, in one round
// trip. They are gone if tx commits. If it rolls back they are in the queue as before,
// and no attempt counts. They have no lease.
func (q *Queue) Dequeue(ctx context.Context, tx pgx.Tx, n int, group string) ([]penstock.Job, error) {
	if err := (&driver.Claim{Jobs: n, Lease: 1, Group: group}).Validate(); err != nil {
		return nil, err
	}
	sql, args := q.dequeue, []any{binaryResults, n, group}
	if n == 1 && group == "" {
		sql, args = q.dequeueNext, args[:1]
	}
	rows, _ := tx.Query(ctx, sql, args...)
	jobs, _, err := collectJobs(rows, n, 0)
	return jobs, q.refused(ctx, err, "work")
}
