package postgres

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/penstock/penstock"
)

// binaryResults asks for all columns in the binary format.
var binaryResults = pgx.QueryResultFormats{pgx.BinaryFormatCode}

// Columns of every statement that returns jobs; those of a lease come last.
const (
	jobID = iota
	jobKey
	jobGroup
	jobPriority
	jobAttempt
	jobCreatedAt
	jobHeaders
	jobPayload
	jobLease
	jobLeaseUntil
	leasedJobColumns
)

// bigint is a value, if it came in the binary format; false from a connection that does not prepare statements.
func bigint(rows pgx.Rows, raw []byte) (int64, bool) {
	if len(raw) != 8 || rows.FieldDescriptions()[0].Format != pgx.BinaryFormatCode {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(raw)), true
}

// collectJobs reads jobs off the wire and closes rows. most is how many may come, acks how many leases: a row
// without an id is one that was ended.
func collectJobs(rows pgx.Rows, most, acks int) (jobs []penstock.Job, ended []int64, err error) {
	defer rows.Close()
	var d jobDecoder
	for rows.Next() {
		row := rows.RawValues()
		if row[jobID] == nil && len(row) == leasedJobColumns {
			if ended == nil {
				ended = make([]int64, 0, acks)
			}
			lease, ok := bigint(rows, row[jobLease])
			if !ok {
				if err := rows.Scan(nil, nil, nil, nil, nil, nil, nil, nil, &lease, nil); err != nil {
					return nil, nil, err
				}
			}
			ended = append(ended, lease)
			continue
		}
		switch len(jobs) { // mostly few of those asked for come, or all
		case 0:
			jobs = make([]penstock.Job, 0, min(most, 8))
		case 8:
			jobs = slices.Grow(jobs, max(min(most, 256)-8, 0))
		}
		jobs = append(jobs, penstock.Job{})
		j := &jobs[len(jobs)-1]
		switch {
		case rows.FieldDescriptions()[0].Format == pgx.BinaryFormatCode:
			err = d.decode(j, row)
		default: // a connection that does not prepare statements
			err = scanJob(j, rows)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return jobs, ended, rows.Err()
}

// jobDecoder turns binary rows into jobs. The contents of each job are one separate allocation, so
// that a long job does not keep its neighbours' payloads.
type jobDecoder struct {
	group string // the last one: neighbours mostly share it
}

func (d *jobDecoder) decode(j *penstock.Job, row [][]byte) error {
	for _, c := range [...]struct{ column, bytes int }{{jobID, 8}, {jobPriority, 2}, {jobAttempt, 4}, {jobCreatedAt, 8}} {
		if c.column >= len(row) || len(row[c.column]) != c.bytes {
			return fmt.Errorf("a row of %d columns does not look like a job", len(row))
		}
	}
	j.ID = int64(binary.BigEndian.Uint64(row[jobID]))
	j.Key = string(row[jobKey])
	if group := row[jobGroup]; string(group) != d.group {
		d.group = string(group)
	}
	j.Group = d.group
	j.Priority = int(int16(binary.BigEndian.Uint16(row[jobPriority])))
	j.Attempt = int(int32(binary.BigEndian.Uint32(row[jobAttempt])))
	j.CreatedAt = timestamp(row[jobCreatedAt])
	j.Payload = append(make([]byte, 0, len(row[jobPayload])), row[jobPayload]...)
	if h := row[jobHeaders]; len(h) > 1 { // jsonb: a version and the text
		headers, err := decodeHeaders(h[1:])
		if err != nil {
			return fmt.Errorf("headers of job %d: %w", j.ID, err)
		}
		j.Headers, j.Report = withoutReport(headers)
	}
	if len(row) < leasedJobColumns {
		return nil
	}
	if len(row[jobLease]) != 8 || len(row[jobLeaseUntil]) != 8 {
		return fmt.Errorf("the lease of job %d does not look like one", j.ID)
	}
	j.Lease = int64(binary.BigEndian.Uint64(row[jobLease]))
	j.LeaseUntil = timestamp(row[jobLeaseUntil])
	return nil
}

func scanJob(j *penstock.Job, rows pgx.Rows) error {
	var (
		headers []byte
		to      = []any{&j.ID, (*zeronull.Text)(&j.Key), &j.Group, &j.Priority, &j.Attempt, &j.CreatedAt, &headers, &j.Payload, &j.Lease, &j.LeaseUntil}
	)
	if err := rows.Scan(to[:len(rows.FieldDescriptions())]...); err != nil {
		return err
	}
	j.CreatedAt, j.LeaseUntil = j.CreatedAt.UTC(), j.LeaseUntil.UTC()
	if len(headers) == 0 {
		return nil
	}
	decoded, err := decodeHeaders(headers)
	j.Headers, j.Report = withoutReport(decoded)
	return err
}

// headerReport carries what an earlier attempt has reported.
const headerReport = "penstock-report"

// withoutReport parts the headers that a producer gave a job from the report of an earlier attempt. They may be copied to another job, which has
// no report.
func withoutReport(headers map[string]string) (map[string]string, json.RawMessage) {
	text, ok := headers[headerReport]
	if !ok {
		return headers, nil
	}
	delete(headers, headerReport)
	if len(headers) == 0 {
		headers = nil
	}
	return headers, json.RawMessage(text)
}

// collectEnqueued reads rows of an id, where jobs have dedup keys also of whether it is
// an earlier job's, and closes them.
func collectEnqueued(rows pgx.Rows, most int) ([]penstock.Enqueued, error) {
	defer rows.Close()
	made := make([]penstock.Enqueued, 0, most)
	for rows.Next() {
		var m penstock.Enqueued
		to := []any{&m.ID, &m.Deduplicated}
		if err := rows.Scan(to[:len(rows.FieldDescriptions())]...); err != nil {
			return nil, err
		}
		made = append(made, m)
	}
	return made, rows.Err()
}

// collectIDs reads rows of one bigint and closes them.
func collectIDs(rows pgx.Rows, most int) ([]int64, error) {
	defer rows.Close()
	ids := make([]int64, 0, most)
	for rows.Next() {
		id, ok := bigint(rows, rows.RawValues()[0])
		if !ok {
			if err := rows.Scan(&id); err != nil {
				return nil, err
			}
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
