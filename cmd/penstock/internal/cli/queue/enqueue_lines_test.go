package queue

import (
	"strings"
	"testing"
	"time"
)

func TestParseJobLineRefuses(t *testing.T) {
	for line, want := range map[string]string{
		`{"topic":"t"}`: `is not a job: json: unknown field "topic"`,
		`{"delay":"1h","not_before":"2999-01-01T00:00:00Z"}`: "has both delay and not_before",
		`{"delay":"soon"}`:        `delay is "soon": use a number with ms, s, m, h or d`,
		`{"not_before":"soon"}`:   "is not a job",
		`{"priority":"high"}`:     "priority cannot be a string: see penstock enqueue --help",
		`{"key":"a","KEY":"b"}`:   "has key twice",
		`[]`:                      `is a JSON array: write an object such as {"payload":"p","key":"k"}`,
		`{"dedup_key":"\u0000"}`:  "dedup key has a NUL",
		"{\"payload\":\"\xff\"}":  "is not valid UTF-8",
		`{"payload":1} {}`:        "more than one JSON value",
		`{"payload_base64":"%%"}`: "illegal base64",
	} {
		if _, err := parseJobLine([]byte(line), time.Now()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %q in it", line, err, want)
		}
	}
}
