package queuetest

import (
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/suite"
)

var kindCases = named("Kind", kindEveryOptionCarriesIt)

func ofKind(kind, payload string) penstock.NewJob {
	return penstock.NewJob{Kind: kind, Payload: []byte(payload)}
}

// wantKinds takes jobs that are named after their kinds, and ends them.
func (e *env) wantKinds(claimed []penstock.Job) {
	for _, j := range claimed {
		suite.Equal(e, j.Kind(), strings.TrimRight(string(j.Payload), "0123456789"), "kind of %s", j.Payload)
		if j.Kind() == "" && len(j.Headers) > 0 {
			e.Errorf("a job without a kind has the headers %v", j.Headers)
		}
	}
	e.ack(claimed...)
}

// Whatever else a job has, and however many are enqueued by one call, each has the kind that it was given.
func kindEveryOptionCarriesIt(e *env) {
	e.enqueue(ofKind("a", "a1"))
	e.wantKinds(e.want("a1"))
	longest := strings.Repeat("k", penstock.MaxKindBytes)
	for _, j := range []penstock.NewJob{
		{Kind: "b", Key: "k"}, {Kind: "c", Priority: 3}, {Kind: "d", DedupKey: "d"}, {Kind: "e", NotBefore: time.Now().Add(-time.Second)}, {Kind: longest},
		{Headers: map[string]string{penstock.HeaderKind: "f"}}, {Kind: "g", Headers: map[string]string{penstock.HeaderKind: "g"}}, {Kind: `ü "é" \ 'x'`},
	} {
		kind := j.AllHeaders()[penstock.HeaderKind]
		one, two := j, j
		one.Payload, two.Payload, two.Key, two.DedupKey = []byte(kind+"1"), []byte(kind+"2"), j.Key+j.Key, j.DedupKey+j.DedupKey
		tx := e.begin()
		tx.enqueue(one)
		tx.enqueue(two, ofKind("many", "many"), job("0"))
		tx.Commit()
		e.wantKinds(e.collect(kind+"1", kind+"2", "many", "0"))
	}
	headers := map[string]string{"h": "1"}
	e.enqueue(penstock.NewJob{Kind: "h", Headers: headers, Payload: []byte("h")})
	suite.Equal(e, len(headers), 1, "headers of the caller, after Enqueue")
	claimed := e.want("h")
	suite.Equal(e, claimed[0].Headers, map[string]string{"h": "1", penstock.HeaderKind: "h"}, "headers")
	e.wantKinds(claimed)
}
