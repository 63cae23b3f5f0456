// Package console shows a Penstock database in a browser and to programs, and lets operators act on it: pages below /,
// JSON below /api/v1. internal/web decides who has access.
package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/resend"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/web"
)

// Optional parts of a store. Without a part, the console lacks its pages.
type (
	pins interface {
		VacuumPins(ctx context.Context) ([]admin.VacuumPin, error)
	}
	finders interface {
		FindMessages(ctx context.Context, f admin.Find) ([]admin.Found, error)
		FindJobs(ctx context.Context, f admin.Find) ([]admin.Found, error)
	}
	holders interface {
		HeldSegments(ctx context.Context) ([]doctor.HeldSegment, error)
	}
	running interface {
		Running(ctx context.Context, queue string, most int) ([]doctor.Running, error)
	}
)

// Store has the required methods; other parts are optional.
type Store interface {
	driver.Database
	driver.StatusCounter
	driver.CauseCounter
	driver.JobCauseCounter
	DeadNumbers(ctx context.Context, in, subscription string, after int64, most int) ([]int64, error)
}

// The names of credentials: see web.Credential. Without credentials every client may do everything.
const (
	RoleRead    = "read"
	RoleOperate = "operate"
)

// Options of New.
type Options struct {
	Store Store
	// Adopted are the subscriptions over tables that applications have made.
	Adopted []Adopted
	// Findings are those of penstock doctor. While a page is open they are at most half a minute old, unless they take longer.
	Findings func(ctx context.Context) ([]doctor.Finding, error)
	// BasePath is the path behind a proxy, as in /penstock; empty for the root.
	BasePath string
	// Up is the path of the list of several databases, or empty if there is one database.
	Up string
	// Redact are names of headers, and of members of JSON payloads at any depth, whose values are hidden.
	Redact []string
	// Title distinguishes one console from another.
	Title string
	// Waits are histograms of how long messages and jobs wait, with labels outbox and subscription, or queue. They cover the messages and jobs that this
	// process relays and runs; nil if it does neither. WaitsEvery is how often Watch samples them, by default every 10 s.
	Waits      prometheus.Collector
	WaitsEvery time.Duration
	Logger     *slog.Logger // default: slog.Default()
}

const (
	countedUpTo = 1000
	patience    = 5 * time.Second  // for reads
	actPatience = 45 * time.Second // for actions: several statements, each within the server's limit
	seldomEvery = 30 * time.Second
	atOnce      = 500
	mostAtOnce  = 20_000
	window      = 5_000                  // dead letters that one statement scans if a filter narrows the choice
	lookFor     = 150 * time.Millisecond // to scan windows, for a page
	actFor      = 20 * time.Second       // to act on them
)

// Console is an http.Handler. All clients share its readings.
type Console struct {
	o         Options
	mux       *http.ServeMux
	at        http.Handler // mux, below the base path
	status    shared[*Status]
	findings  shared[[]doctor.Finding]
	inboxes   shared[[]admin.InboxStatus]
	adopted   shared[[]AdoptedStatus]
	samples   shared[sampled]
	answers   answers
	reading   chan struct{} // this many examinations at a time
	history   history
	latencies latencies
}

// New makes a console for a store.
func New(o Options) *Console {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.WaitsEvery = cmp.Or(o.WaitsEvery, latencyEvery)
	o.BasePath = strings.TrimRight(o.BasePath, "/")
	c := &Console{o: o, mux: http.NewServeMux(), reading: make(chan struct{}, 2)}
	for _, r := range routes {
		c.mux.Handle(r.method+" /api/v1"+r.path, c.api(r))
	}
	c.mux.HandleFunc("GET /api/v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document)
	})
	c.mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		answerJSON(w, http.StatusNotFound, problem{"there is nothing at " + r.URL.Path, "GET /api/v1/openapi.json lists all"})
	})
	c.pages()
	if c.at = c.mux; c.o.BasePath != "" { // a mux around it: it redirects /ops//x to /ops/x, and not to /x
		below := http.NewServeMux()
		below.Handle(c.o.BasePath+"/", http.StripPrefix(c.o.BasePath, c.mux))
		c.at = below
	}
	return c
}

// policy lets a page load resources only from here.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func protect(w http.ResponseWriter) {
	for name, value := range map[string]string{"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store"} {
		w.Header().Set(name, value)
	}
}

func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w)
	c.at.ServeHTTP(w, r)
}

// mayOperate reports whether the client may change anything.
func mayOperate(r *http.Request) bool { return web.From(r) != RoleRead }

// Status is the database's status, counted up to a thousand of each kind.
type Status struct {
	At       time.Time            `json:"at"`
	Outboxes []admin.OutboxStatus `json:"outboxes"`
	Queues   []admin.QueueStatus  `json:"queues"`
	Inboxes  []admin.InboxStatus  `json:"inboxes"`
	Adopted  []AdoptedStatus      `json:"adopted"`
	Pins     []admin.VacuumPin    `json:"vacuum_pins"`
	// Unseen are the kinds of things that the role may not read.
	Unseen  []string `json:"unseen,omitempty"`
	refused map[string]error
}

// without is the reason why a kind is not in it.
func (s *Status) without(kind string, err error) error {
	refused := s.refused[kind]
	if refused == nil {
		return err
	}
	err = fmt.Errorf("%w %s", errUnseen, kind)
	if next := hintOf(refused); next != "" {
		err = penstock.WithHint(err, "%s", next)
	}
	return err
}

// grants show a kind to a role that may not even use the schema: that error does not name one.
var grants = map[string]string{"outboxes": "penstock outbox grant ROLE --relay", "queues": "penstock queue grant QUEUE ROLE --operate", "inboxes": "penstock inbox grant CONSUMER ROLE --operate"}

// Refused says for a page that the role may not read a kind, and who may grant it; it is empty otherwise.
func (s *Status) Refused(kind string) string {
	err := s.refused[kind]
	if err != nil && grants[kind] != "" {
		err = penstock.WithHint(err, "the owner of the schema can grant it: %s", grants[kind])
	}
	return refusal(err)
}

func refusal(err error) string {
	if err == nil {
		return ""
	}
	return strings.TrimSuffix("The role of this console may not read them: "+hintOf(err), ": ")
}

func hintOf(err error) string {
	if hint, ok := errors.AsType[*penstock.HintError](err); ok {
		return hint.Hint
	}
	return ""
}

func (c *Console) readStatus(ctx context.Context) (*Status, error) {
	return c.status.get(ctx, c.lookAtStatus, func(took time.Duration) time.Duration { return pause(took, c.answers.many()) })
}

func (c *Console) lookAtStatus() (*Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s := &Status{Outboxes: []admin.OutboxStatus{}, Queues: []admin.QueueStatus{}, Inboxes: []admin.InboxStatus{}, Pins: []admin.VacuumPin{}, refused: map[string]error{}}
	refused := func(what string, err error) error {
		if pgerror.IsForbidden(err) {
			s.Unseen = append(s.Unseen, what)
			s.refused[what] = err
			return nil
		}
		return err
	}
	var err error
	if s.Outboxes, err = orEmpty(c.o.Store.StatusUpTo(ctx, countedUpTo)); refused("outboxes", err) != nil {
		return nil, err
	}
	if s.Queues, err = orEmpty(c.o.Store.QueueStatusUpTo(ctx, countedUpTo)); refused("queues", err) != nil {
		return nil, err
	}
	if s.Inboxes, err = orEmpty(c.inboxes.get(ctx, func() ([]admin.InboxStatus, error) { // it counts by reading the held messages
		ctx, cancel := context.WithTimeout(context.Background(), patience) // it may continue when this examination has ended
		defer cancel()
		return c.o.Store.Inboxes(ctx)
	}, seldom)); refused("inboxes", err) != nil {
		return nil, err
	}
	if s.Adopted, err = orEmpty(c.adopted.get(ctx, c.lookAtAdopted, seldom)); err != nil {
		return nil, err
	}
	if store, ok := c.o.Store.(pins); ok {
		if s.Pins, err = orEmpty(store.VacuumPins(ctx)); refused("what holds back vacuum", err) != nil {
			return nil, err
		}
		s.Pins = slices.DeleteFunc(s.Pins, func(p admin.VacuumPin) bool { return p.Age > 0 && p.Age < time.Second }) // those that read for this page among them
	}
	s.At = time.Now().UTC()
	c.history.add(s)
	return s, nil
}

func seldom(took time.Duration) time.Duration { return max(seldomEvery, pause(took, 1)) }

func orEmpty[T any](found []T, err error) ([]T, error) {
	if found == nil {
		found = []T{}
	}
	return found, err
}

func (c *Console) lookForFindings() ([]doctor.Finding, error) {
	if c.o.Findings == nil {
		return []doctor.Finding{}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), actPatience)
	defer cancel()
	return orEmpty(c.o.Findings(ctx))
}

// oftenEnough keeps findings at most half a minute old when the next ones arrive, for a page that asks every two seconds.
func oftenEnough(took time.Duration) time.Duration {
	return min(max(readEvery, seldomEvery-took-3*time.Second), seldomEvery/2) // the next examination may take longer
}

// awaitFindings waits for missing or old findings, but not as long as a page may take.
func (c *Console) awaitFindings(ctx context.Context) {
	c.findings.await(ctx, seldomEvery, patience/2, c.lookForFindings, oftenEnough)
}

// readFindings waits for the doctor; lastFindings does not, because a page would take too long.
func (c *Console) readFindings(ctx context.Context) ([]doctor.Finding, error) {
	return c.findings.get(ctx, c.lookForFindings, oftenEnough)
}

func (c *Console) lastFindings() ([]doctor.Finding, time.Time, error) {
	return c.findings.last(c.lookForFindings, oftenEnough)
}

// did logs actions and their actors: the audit.
func (c *Console) did(r *http.Request, what string, args ...any) {
	user, _, _ := r.BasicAuth()
	c.o.Logger.Info("console: "+what, append([]any{"role", cmp.Or(web.From(r), "local"), "user", user, "from", r.RemoteAddr}, args...)...)
	c.status.forget()
	c.adopted.forget()
	c.findings.forget()
	c.answers.forget()
}

// problem is the answer to a request that failed.
type problem struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}

// wrong turns an error into the answer for the client.
func wrong(err error) (int, problem) {
	p := problem{err.Error(), hintOf(err)}
	field, isField := errors.AsType[*penstock.FieldError](err)
	switch {
	case errors.Is(err, errMayNot), errors.Is(err, errUnseen), pgerror.IsForbidden(err):
		return http.StatusForbidden, p
	case isField:
		p.Hint = field.Hint
		return http.StatusBadRequest, p
	case pgerror.State(err) == "22021":
		p.Hint = "names, keys and filters are UTF-8 without NUL"
		return http.StatusBadRequest, p
	case errors.Is(err, penstock.ErrReplaying):
		return http.StatusConflict, p
	case errors.Is(err, penstock.ErrNoOutbox), errors.Is(err, penstock.ErrNoQueue), errors.Is(err, penstock.ErrNoSubscription), errors.Is(err, penstock.ErrNoSchedule), errors.Is(err, penstock.ErrNoInbox), errors.Is(err, errNotFound), errors.Is(err, errNoFinder), errors.Is(err, resend.ErrGone):
		return http.StatusNotFound, p
	case errors.Is(err, context.DeadlineExceeded), pgerror.State(err) == "57014":
		return http.StatusServiceUnavailable, problem{"the database took too long", "narrow the filter, or find out why it is busy"}
	case pgerror.IsDown(err):
		return http.StatusServiceUnavailable, p
	}
	return http.StatusInternalServerError, p
}

var (
	errMayNot   = errors.New("this credential may only read")
	errUnseen   = errors.New("this role of the database may not read")
	errNotFound = errors.New("there is none of that name")
	errNoFinder = errors.New("of this database Penstock finds nothing by an id or a key: it does on PostgreSQL")
)

func answerJSON(w http.ResponseWriter, code int, what any) {
	w.Header().Set("Content-Type", "application/json")
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false)
	if err := e.Encode(what); err != nil {
		http.Error(w, fmt.Sprintf("%q", err), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(code)
	_, _ = w.Write(body.Bytes())
}
