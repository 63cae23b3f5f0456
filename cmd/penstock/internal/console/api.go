package console

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/doctor"
)

// route is one operation of the API. TestDocument compares openapi.json with all routes.
type route struct {
	method, path, summary string
	params                []string     // of the query
	body, answer          reflect.Type // body is nil if there is none
	serve                 func(c *Console, ctx context.Context, call *call) (any, error)
	itself                bool // its data is shared already, or in memory
}

// call is a request to a route.
type call struct {
	*http.Request
	body any
}

func (c *call) int(name string, otherwise, most int) (int, error) {
	n, err := strconv.Atoi(cmp.Or(c.FormValue(name), strconv.Itoa(otherwise)))
	if err != nil || n < 1 || n > most {
		return 0, &penstock.FieldError{Field: name, Problem: fmt.Sprintf("is %q", c.FormValue(name)), Hint: fmt.Sprintf("use 1 to %d", most)}
	}
	return n, nil
}

// page is how long a page of dead letters is, and where the page before ended, by number.
func (c *call) page() (limit int, after int64, err error) {
	if after, err = strconv.ParseInt(cmp.Or(c.FormValue("after"), "0"), 10, 64); err != nil {
		return 0, 0, &penstock.FieldError{Field: "after", Problem: "is not a number", Hint: "give the value that the page before had as after"}
	}
	limit, err = c.int("limit", 25, 100)
	return limit, after, err
}

// subject is the queue, or outbox/subscription, of a request, of samples or of labels.
func subject(queue, outbox, subscription string) string {
	if queue != "" {
		return queue
	}
	return outbox + "/" + subscription
}

// reads is a route that changes nothing, acts one that does.
func reads[A any](path, summary string, params []string, serve func(c *Console, ctx context.Context, call *call) (A, error)) route {
	return route{method: "GET", path: path, summary: summary, params: params, answer: reflect.TypeFor[A](),
		serve: func(c *Console, ctx context.Context, call *call) (any, error) { return serve(c, ctx, call) }}
}

func sharing(r route) route {
	r.itself = true
	return r
}

func acts[B, A any](path, summary string, serve func(c *Console, ctx context.Context, call *call, body B) (A, error)) route {
	return route{method: "POST", path: path, summary: summary, body: reflect.TypeFor[B](), answer: reflect.TypeFor[A](),
		serve: func(c *Console, ctx context.Context, call *call) (any, error) {
			return serve(c, ctx, call, *call.body.(*B))
		}}
}

// Bodies of actions.
type (
	// Bulk is an action on all matching dead letters; dry_run only counts them. Without a filter it needs all.
	Bulk struct {
		Filter
		All bool `json:"all,omitempty"`
		// After is where the previous answer stopped.
		After  int64 `json:"after,omitempty"`
		DryRun bool  `json:"dry_run,omitempty"`
	}
	// Resend are dead letters whose contents are sent again, as new messages or jobs. They stay, or
	// are discarded.
	Resend struct {
		Numbers []int64 `json:"numbers"`
		Discard bool    `json:"discard,omitempty"`
	}
	Keys struct {
		Keys []string `json:"keys,omitempty"` // none: all
	}
	Jobs struct {
		IDs []int64 `json:"ids"`
	}
	Named struct {
		Name string `json:"name"`
	}
	Held struct {
		Key string `json:"key,omitempty"`
		ID  string `json:"id,omitempty"`
	}
	Settings = penstock.QueueSettings
	// ByHand is a message or a job that an operator writes: its contents are text.
	ByHand struct {
		Topic   string            `json:"topic,omitempty"` // of a message
		Kind    string            `json:"kind,omitempty"`  // of a job, as its group and its delay
		Key     string            `json:"key,omitempty"`
		Group   string            `json:"group,omitempty"`
		Delay   int               `json:"delay_seconds,omitempty"`
		Headers map[string]string `json:"headers,omitempty"`
		Payload string            `json:"payload,omitempty"`
		CopyOf  int64             `json:"copy_of,omitempty"` // a job whose contents it has, in the given group
	}
	// Range is the range to deliver again; an empty field is not a limit.
	Range struct {
		FromSeq int64 `json:"from_seq,omitempty"`
		ToSeq   int64 `json:"to_seq,omitempty"`
	}
)

// Enqueued is the job that was enqueued.
type Enqueued struct {
	ID int64 `json:"id"`
}

// Resent has the ids of the new ones, in the order of the given numbers.
type Resent struct {
	IDs       []string `json:"ids"`
	Discarded int64    `json:"discarded"`
}

// Count is how many were affected.
type Count struct {
	Done int64 `json:"done"`
}

// GiveUp names a parked message, and the reason for giving it up.
type GiveUp struct {
	Number int64  `json:"number"`
	Reason string `json:"reason"`
}

// List is a page, which may be short. after is the cursor of the next page, and missing on the last.
type List[T any] struct {
	Items []T    `json:"items"`
	After string `json:"after,omitempty"`
}

func listOf[T any](items []T, limit int, after func(T) string) List[T] {
	l := List[T]{Items: items}
	if items == nil {
		l.Items = []T{}
	}
	if len(items) == limit {
		l.After = after(items[len(items)-1])
	}
	return l
}

const (
	ofQueue        = "/queues/{queue}"
	ofSubscription = "/outboxes/{outbox}/subscriptions/{subscription}"
)

var routes = slices.Concat([]route{
	sharing(reads("/status", "Outboxes, queues, inboxes and what holds back vacuum, counted up to 1,000 of each kind", nil,
		func(c *Console, ctx context.Context, _ *call) (*Status, error) { return c.readStatus(ctx) })),
	sharing(reads("/findings", "Present and coming problems, and how to solve them", nil,
		func(c *Console, ctx context.Context, _ *call) ([]doctor.Finding, error) { return c.readFindings(ctx) })),
	reads("/outboxes/{outbox}/messages", "The message of an id, or the newest of a key, and its state for each subscription", findParams[:3], (*Console).messages),
	reads(ofQueue+"/jobs", "The job of an id, or those of a key, and where it is; a ready one of a group also needs the group. Or, without payloads, the jobs of a state: ready (of a group, in their order), running, delayed or waiting", findParams, (*Console).jobs),
	sharing(reads(ofSubscription+"/latency", "How long messages took from commit to confirm in the last hour, where this process relays them", nil,
		(*Console).latency)),
	sharing(reads(ofQueue+"/latency", "How long jobs took from enqueue to start in the last hour, where this process runs them", nil, (*Console).latency)),
	sharing(reads(ofSubscription+"/samples", "Samples of arrivals and settled messages in the last three hours, about once a minute, where the database keeps them", nil,
		(*Console).samplesOf)),
	sharing(reads(ofQueue+"/samples", "Samples of new, done and failed jobs in the last three hours, about once a minute, where the database keeps them", nil,
		(*Console).samplesOf)),
	reads(ofSubscription+"/parked", "Parked keys, those due soonest first", []string{"limit"}, (*Console).parked),
	acts(ofSubscription+"/parked/retry", "Have parked keys tried at once; done is how many waited", (*Console).retryParked),
	acts(ofSubscription+"/parked/give-up", "Make a parked message a dead letter: the first of a key that waits for another attempt. Otherwise done is 0", (*Console).giveUpParked),
	acts(ofSubscription+"/replay", "Deliver settled messages again that are still there", func(c *Console, ctx context.Context, call *call, b Range) (Count, error) {
		if b == (Range{}) {
			return Count{}, &penstock.FieldError{Field: "from_seq", Problem: "is missing", Hint: "say where to begin: 1 is the first message that is still there"}
		}
		n, err := c.o.Store.Replay(ctx, admin.Replay{Outbox: call.PathValue("outbox"), Subscription: call.PathValue("subscription"), FromSeq: b.FromSeq, ToSeq: b.ToSeq})
		return Count{n}, err
	}),
	reads(ofQueue+"/groups", "Groups with jobs or dead letters, by name", []string{"after", "limit"}, (*Console).groups),
	reads(ofQueue+"/running", "Jobs that are leased, those for longest first", nil, (*Console).running),
	reads("/workers", "Workers of a queue, or of all: those that have sent a heartbeat in the last ten minutes, and those that have jobs", []string{"queue"}, (*Console).workers),
	reads(ofQueue+"/done", "Jobs that are done, where they are kept: the latest first, those of a kind, or the one of an id", []string{"after", "limit", "id", "kind"}, (*Console).done),
	reads(ofQueue+"/schedules", "Periodic jobs, by name", nil, (*Console).schedules),
	acts(ofQueue+"/settings", "Change settings: those that are left out stay", func(c *Console, ctx context.Context, call *call, b Settings) (Count, error) {
		return Count{1}, c.o.Store.SetQueue(ctx, call.PathValue("queue"), b)
	}),
	acts(ofQueue+"/enqueue", "Enqueue a job: kind, key, group, delay_seconds, headers, payload. Or a copy of a job that has not ended, on PostgreSQL: copy_of, and the group of a ready one", (*Console).enqueue),
	acts("/outboxes/{outbox}/publish", "Publish a message: topic, key, headers, payload", (*Console).publish),
	acts(ofQueue+"/cancel", "Cancel jobs, wherever they are; done is how many there were", func(c *Console, ctx context.Context, call *call, b Jobs) (Count, error) {
		if len(b.IDs) == 0 {
			return Count{}, errNoIDs
		}
		n, err := c.o.Store.CancelJobs(ctx, call.PathValue("queue"), b.IDs...)
		return Count{int64(n)}, err
	}),
	acts(ofQueue+"/retry", "Run jobs now that are delayed, or failed and wait for their next attempt, and dead letters; done is how many there were", func(c *Console, ctx context.Context, call *call, b Jobs) (Count, error) {
		if len(b.IDs) == 0 {
			return Count{}, errNoIDs
		}
		n, err := c.o.Store.RetryDeadJobs(ctx, admin.DeadJobQuery{Queue: call.PathValue("queue"), IDs: b.IDs})
		return Count{int64(n)}, err
	}),
	reads("/inboxes/{consumer}/held", "Held messages, those due first at first", []string{"limit"}, (*Console).held),
	reads("/inboxes/{consumer}/gaps", "Gaps, the latest first", []string{"limit"}, (*Console).gaps),
	acts("/inboxes/{consumer}/release", "Have held messages handed over without waiting for more", func(c *Console, ctx context.Context, call *call, b Held) (Count, error) {
		n, err := c.o.Store.ReleaseHeld(ctx, admin.HeldQuery{Consumer: call.PathValue("consumer"), Key: b.Key, ID: b.ID})
		return Count{n}, err
	}),
}, scheduleRoutes(), deadRoutes(ofQueue), deadRoutes(ofSubscription), tableRoutes())

// deadRoutes are the same routes for jobs and for messages.
func deadRoutes(of string) []route {
	bulk := func(verb string, discard bool) route {
		return acts(of+"/dead/"+verb, verb+" all dead letters that match, or with dry_run count them; matched is 0 if there are none of these numbers", func(c *Console, ctx context.Context, call *call, b Bulk) (Done, error) {
			if err := named("numbers", b.Numbers); err != nil {
				return Done{}, err
			}
			if !b.All && !b.DryRun && len(b.Filter.values()) == 0 {
				return Done{}, &penstock.FieldError{Field: "all", Problem: "is missing, and nothing narrows the choice", Hint: "give numbers or another filter, or say \"all\": true"}
			}
			return c.onAll(ctx, c.boxOf(call), b.Filter, b.After, discard, b.DryRun)
		})
	}
	return []route{
		reads(of+"/dead", "Dead letters that match, by number", append([]string{"after", "limit"}, filterParams...), (*Console).dead),
		reads(of+"/dead/causes", "Why they died, of the first 10,000 that match", filterParams, func(c *Console, ctx context.Context, call *call) (Causes, error) {
			f, err := filterOf(call.URL.Query())
			if err != nil {
				return Causes{}, err
			}
			return c.causesOf(ctx, c.boxOf(call), f)
		}),
		bulk("retry", false), bulk("discard", true),
		acts(of+"/dead/resend", "Send the contents of up to 100 dead letters again, as new ones of new ids", func(c *Console, ctx context.Context, call *call, b Resend) (Resent, error) {
			return c.resend(ctx, c.boxOf(call), b)
		}),
	}
}

// errNoIDs is for a list of jobs without any.
var errNoIDs = &penstock.FieldError{Field: "ids", Problem: "is empty", Hint: "name at least one"}

// named refuses a list that is given and empty: a client that has found none does not mean all.
func named[T any](field string, given []T) error {
	if given != nil && len(given) == 0 {
		return &penstock.FieldError{Field: field, Problem: "is empty", Hint: "name at least one"}
	}
	return nil
}

func (c *Console) boxOf(r *call) box {
	if queue := r.PathValue("queue"); queue != "" {
		return jobBox{c, queue}
	}
	return messageBox{c, r.PathValue("outbox"), r.PathValue("subscription")}
}

// malformed describes an error of a body in terms of JSON, rather than Go.
func malformed(err error) error {
	e := &penstock.FieldError{Field: "body", Problem: strings.TrimPrefix(err.Error(), "json: "), Hint: "GET /api/v1/openapi.json describes it"}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		e.Problem = "cannot be a JSON " + wrong.Value
		if wrong.Field != "" {
			e.Field = wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:] // before it are the names of embedded structs
		}
	}
	return e
}

// api serves a route as JSON.
func (c *Console) api(r route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		found, err := c.serve(r, request, func(body any) error {
			if kind, _, _ := mime.ParseMediaType(request.Header.Get("Content-Type")); kind != "application/json" {
				return &penstock.FieldError{Field: "Content-Type", Problem: fmt.Sprintf("is %q", kind), Hint: "send application/json"}
			}
			d := json.NewDecoder(request.Body)
			d.DisallowUnknownFields()
			err := d.Decode(body)
			if err == nil {
				if _, err = d.Token(); err == nil {
					err = errors.New("has more than one JSON value")
				}
			}
			if !errors.Is(err, io.EOF) {
				return malformed(err)
			}
			return nil
		})
		if err != nil {
			code, p := wrong(err)
			answerJSON(w, code, p)
			return
		}
		answerJSON(w, http.StatusOK, found)
	})
}

// serve reads, or acts if the client may, and logs it. decode fills in the body.
func (c *Console) serve(r route, request *http.Request, decode func(body any) error) (any, error) {
	if r.itself {
		return r.serve(c, request.Context(), &call{Request: request})
	}
	if r.body == nil {
		found, err := c.shown(request, func(ctx context.Context, one *call) (answer, error) {
			data, err := r.serve(c, ctx, one)
			return answer{data: data}, err
		})
		return found.data, err
	}
	one := &call{Request: request}
	if !mayOperate(request) {
		return nil, errMayNot
	}
	one.body = reflect.New(r.body).Interface()
	if err := decode(one.body); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(request.Context(), actPatience)
	defer cancel()
	found, err := r.serve(c, ctx, one)
	c.did(request, "did "+path.Base(r.path), "path", request.URL.Path, "request", noted(one.body), "answer", noted(found), "err", err)
	return found, err
}

// noted is the logged part of a request or an answer: not all of a list of 100,000 numbers.
func noted(what any) string {
	text, _ := json.Marshal(what)
	if n := len(text); n > mostNoted {
		return fmt.Sprintf("%s… (%d bytes)", bytes.ToValidUTF8(text[:mostNoted], nil), n)
	}
	return string(text)
}

const mostNoted = 4 << 10

//go:embed openapi.json
var document []byte
