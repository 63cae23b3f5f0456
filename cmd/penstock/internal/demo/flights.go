package demo

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Flight is one scheduled departure. Its JSON is the message's payload.
type Flight struct {
	// ID is the flight's line in the data, counted from 1 after the header.
	ID        int64  `json:"flight_id"`
	Scheduled string `json:"scheduled_departure"`
	Carrier   string `json:"carrier"`
	Number    int    `json:"flight"`
	// Tailnum identifies the aircraft. It is empty if the data has none.
	Tailnum string `json:"tailnum,omitempty"`
	Origin  string `json:"origin"`
	Dest    string `json:"dest"`
	// DepTime is hour*100 + minute. Nil with the delays for a cancelled flight.
	DepTime  *int `json:"dep_time"`
	DepDelay *int `json:"dep_delay_min"`
	ArrDelay *int `json:"arr_delay_min"`
	Distance int  `json:"distance_mi"`
}

//go:embed flights-sample.csv.gz
var sample []byte

// Sample returns the first flights of the embedded data, all 20,000 if limit
// is 0.
func Sample(limit int) ([]Flight, error) {
	return ReadFlights(bytes.NewReader(sample), limit)
}

var columns = []string{
	"scheduled_departure", "carrier", "flight", "tailnum", "origin", "dest",
	"dep_time", "dep_delay_min", "arr_delay_min", "distance_mi",
}

// ReadFlights reads CSV, gzipped or plain, with a header line that names the columns in any order;
// other columns are ignored. A limit of 0 reads all. Errors name the line.
func ReadFlights(r io.Reader, limit int) ([]Flight, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	if magic, _ := in.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		gz, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("not a gzip file after all: %w", err)
		}
		in = bufio.NewReaderSize(gz, 64<<10)
	}
	rows := csv.NewReader(in)
	rows.ReuseRecord = true

	header, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the file is empty: its first line must name the columns %s", strings.Join(columns, ","))
	}
	if err != nil {
		return nil, readError(rows, err)
	}
	at, err := locate(header)
	if err != nil {
		return nil, err
	}
	var flights []Flight
	for limit == 0 || len(flights) < limit {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, readError(rows, err)
		}
		f, err := parseFlight(row, at)
		if err != nil {
			line, _ := rows.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		f.ID = int64(len(flights) + 1)
		flights = append(flights, f)
	}
	if len(flights) == 0 {
		return nil, errors.New("line 1: there is no flight below the header")
	}
	return flights, nil
}

// locate maps columns to their positions in the header.
func locate(header []string) ([]int, error) {
	at := make([]int, len(columns))
	var missing []string
	for i, name := range columns {
		at[i] = slices.Index(header, name)
		if i == 0 && at[i] < 0 { // a byte order mark is not part of the name
			at[i] = slices.Index(header, "\ufeff"+name)
		}
		if at[i] < 0 {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return nil, fmt.Errorf("line 1: the header has no column %s: it must name %s", strings.Join(missing, ", "), strings.Join(columns, ","))
	}
	return at, nil
}

func readError(rows *csv.Reader, err error) error {
	if parse, ok := errors.AsType[*csv.ParseError](err); ok {
		return fmt.Errorf("line %d: %w", parse.Line, parse.Err)
	}
	// InputOffset counts complete records, so the line is that of the last one.
	line := 0
	if rows.InputOffset() > 0 {
		line, _ = rows.FieldPos(0)
	}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("after line %d: the gzip file ends too early: fetch it again", line)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader):
		return fmt.Errorf("after line %d: the gzip file is damaged: fetch it again", line)
	}
	return fmt.Errorf("after line %d: %w", line, err)
}

func parseFlight(row []string, at []int) (Flight, error) {
	field := func(i int) string { return row[at[i]] }
	number := func(i int) (int, error) {
		n, err := strconv.Atoi(field(i))
		if err != nil {
			return 0, fmt.Errorf("%s is %q: it must be a whole number", columns[i], field(i))
		}
		return n, nil
	}
	optional := func(i int) (*int, error) {
		if field(i) == "" {
			return nil, nil
		}
		n, err := number(i)
		return &n, err
	}
	var errs [5]error
	f := Flight{
		Scheduled: strings.Clone(field(0)), Carrier: strings.Clone(field(1)), Tailnum: strings.Clone(field(3)),
		Origin: strings.Clone(field(4)), Dest: strings.Clone(field(5)),
	}
	f.Number, errs[0] = number(2)
	f.DepTime, errs[1] = optional(6)
	f.DepDelay, errs[2] = optional(7)
	f.ArrDelay, errs[3] = optional(8)
	f.Distance, errs[4] = number(9)
	if _, err := time.Parse("2006-01-02T15:04:05", f.Scheduled); err != nil {
		return f, fmt.Errorf("scheduled_departure is %q: it must look like 2013-01-31T17:05:00", f.Scheduled)
	}
	for _, err := range errs {
		if err != nil {
			return f, err
		}
	}
	return f, nil
}
