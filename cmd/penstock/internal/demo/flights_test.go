package demo

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
)

const header = "scheduled_departure,carrier,flight,tailnum,origin,dest,dep_time,dep_delay_min,arr_delay_min,distance_mi\n"

const oneFlight = "2013-01-01T05:15:00,UA,1545,N14228,EWR,IAH,517,2,11,1400\n"

func TestSample(t *testing.T) {
	flights, err := Sample(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(flights) != 20_000 {
		t.Errorf("%d flights, want 20000", len(flights))
	}
	first, last := flights[0], flights[len(flights)-1]
	if first.ID != 1 || first.Tailnum != "N14228" || *first.DepTime != 517 || first.Distance != 1400 {
		t.Errorf("first is %+v", first)
	}
	if last.ID != 20_000 || last.Scheduled != "2013-01-23T21:30:00" || *last.DepDelay != -6 {
		t.Errorf("last is %+v", last)
	}
	if few, err := Sample(7); err != nil || len(few) != 7 {
		t.Errorf("Sample(7) gave %d flights, %v", len(few), err)
	}
}

func TestReadFlights(t *testing.T) {
	for name, csv := range map[string]string{
		"plain":                     header + oneFlight,
		"gzip":                      gzipped(t, header+oneFlight),
		"no newline at the end":     header + strings.TrimSuffix(oneFlight, "\n"),
		"Windows line ends":         strings.ReplaceAll(header+oneFlight, "\n", "\r\n"),
		"byte order mark":           "\ufeff" + header + oneFlight,
		"more columns, other order": "x," + strings.TrimSpace(header) + ",y\n1," + strings.TrimSpace(oneFlight) + ",2\n",
	} {
		t.Run(name, func(t *testing.T) {
			flights, err := ReadFlights(strings.NewReader(csv), 0)
			if err != nil || len(flights) != 1 || flights[0].Tailnum != "N14228" || flights[0].Number != 1545 {
				t.Errorf("got %+v, %v", flights, err)
			}
		})
	}
}

func TestReadFlightsRefuses(t *testing.T) {
	whole := gzipped(t, header+strings.Repeat(oneFlight, 5000))
	damaged := []byte(whole)
	damaged[len(damaged)-6] ^= 0xff // the checksum

	for _, tc := range []struct{ name, csv, want string }{
		{"empty file", "", "the file is empty"},
		{"empty gzip", gzipped(t, ""), "the file is empty"},
		{"header alone", header, "no flight below the header"},
		{"missing columns", "carrier,flight\nUA,1\n", "line 1: the header has no column scheduled_departure, tailnum"},
		{"no header", oneFlight, "line 1: the header has no column"},
		{"short line", header + oneFlight + "2013-01-01T05:15:00,UA\n", "line 3: wrong number of fields"},
		{"text for a number", header + strings.Replace(oneFlight, "1545", "abc", 1), `line 2: flight is "abc"`},
		{"text for a delay", header + oneFlight + strings.Replace(oneFlight, ",2,", ",soon,", 1), `line 3: dep_delay_min is "soon"`},
		{"bad time", header + strings.Replace(oneFlight, "T05", " 05", 1), "line 2: scheduled_departure is"},
		{"open quote", header + `"2013` + "\n", "line 2: "},
		{"truncated gzip", whole[:len(whole)/2], "the gzip file ends too early"},
		{"truncated gzip header", whole[:5], "not a gzip file"},
		{"damaged gzip", string(damaged), "the gzip file is damaged"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ReadFlights(strings.NewReader(tc.csv), 0)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want %q in it", err, tc.want)
			}
		})
	}
}

func gzipped(t *testing.T, s string) string {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}
