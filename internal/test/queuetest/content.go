package queuetest

import (
	"maps"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

var contentCases = named("Content", contentBytesSurvive, contentTextSurvives, contentNothingIsShared)

func contentBytesSurvive(e *env) {
	rnd := e.Random(0)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	payloads := [][]byte{nil, {}, {0}, all, []byte("\xff\xfe invalid UTF-8 \xc3"), []byte(`\x41`), []byte(`{"json": "\u0000"}`), testseed.Bytes(rnd, 1<<20)}
	var batch []penstock.NewJob
	for _, p := range payloads {
		batch = append(batch, penstock.NewJob{Payload: p})
	}
	e.enqueue(batch...)
	check := func(jobs []penstock.Job) {
		suite.MustEqual(e, len(jobs), len(payloads), "claimed jobs")
		for i, j := range jobs {
			suite.Equal(e, j.Payload, payloads[i], "payload %d", i)
		}
	}
	claimed := e.claim(len(payloads))
	check(claimed)
	for _, j := range claimed {
		e.Must(e.q.DeadLetter(e.ctx, j.Lease, "\"x\"\nü"), "DeadLetter")
	}
	dead := e.deadJobs(admin.DeadJobQuery{})
	var again []penstock.Job
	for _, d := range dead {
		again = append(again, d.Job)
	}
	check(again)
	suite.Equal(e, dead[0].Err(), "\"x\"\nü", "the error")
}

func contentTextSurvives(e *env) {
	texts := []string{"", "a b", "Ünïcödé 😀", `quote " ' \ %s {} [] null`, "line\nbreak\ttab", "{\"a\":1}"}
	for _, text := range texts {
		j := penstock.NewJob{Key: text, Group: text, DedupKey: text, Headers: map[string]string{"h" + text: text}, Payload: []byte("p")}
		if text == "" {
			j.Headers = nil
		}
		e.enqueue(j)
		claimed := e.claimAs(driver.Claim{Group: text, Jobs: 2, Worker: text})
		e.same(claimed, "p")
		if c := claimed[0]; c.Key != text || c.Group != text || !maps.Equal(c.Headers, j.Headers) {
			e.Errorf("a job with the text %q came back as %+v", text, c)
		}
		e.ack(claimed...)
	}
	j := penstock.NewJob{Key: strings.Repeat("k", penstock.MaxKeyBytes), Group: strings.Repeat("g", penstock.MaxGroupBytes),
		DedupKey: strings.Repeat("d", penstock.MaxDedupBytes), NotBefore: time.Now().Add(-time.Second), Payload: []byte("longest")}
	e.enqueue(j)
	e.eventually("the longest texts come back", func() bool {
		claimed := e.claimAs(driver.Claim{Group: j.Group, Jobs: 1})
		return len(claimed) == 1 && claimed[0].Key == j.Key && claimed[0].Group == j.Group
	})
}

// Callers may change what they passed and what they got.
func contentNothingIsShared(e *env) {
	payload, headers := []byte("a"), map[string]string{"h": "1"}
	e.enqueue(penstock.NewJob{Payload: payload, Headers: headers})
	payload[0], headers["h"] = 'x', "x"
	first := e.want("a")[0]
	suite.Equal(e, first.Headers["h"], "1", "the header")
	first.Payload[0], first.Headers["h"] = 'y', "y"
	e.retry(first, 0, "")
	suite.Equal(e, e.collect("a")[0].Headers["h"], "1", "the header, the second time")
}
