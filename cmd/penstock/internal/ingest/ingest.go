// Package ingest accepts messages over HTTP, for services whose database is elsewhere and languages without a client. Concurrent
// requests share commits, and each is answered once its own messages are committed.
package ingest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/lines"
	"github.com/penstock/penstock/internal/web"
	"github.com/penstock/penstock/writer"
)

// Outbox is an outbox that accepts messages.
type Outbox struct {
	Name string
	// Token that requests must carry. If it is empty, requests need none.
	Token string
	// Inbox knows the ids of published messages. If it is empty, each message is published as often as it
	// comes.
	Inbox string
}

// Options of New.
type Options struct {
	Listen   string
	Outboxes []Outbox // none means every existing outbox, without a token
	// MaxBody bounds a request. MaxBuffered bounds the received bytes of all requests in progress. Defaults 16
	// MiB and 256 MiB.
	MaxBody     int64
	MaxBuffered int64
	// MaxWait is how long a request waits for room before the client is asked to come back (default 2
	// s).
	MaxWait time.Duration
	Writer  writer.Options
	Logger  *slog.Logger
	// Observer is called with the status of each answer; it may be nil. The name of an outbox that is not served is withheld.
	Observer Observer
}

// Observer is implemented by package metrics.
type Observer interface {
	Answered(outbox string, status, messages int, took time.Duration)
}

// Server accepts messages until it is drained.
type Server struct {
	o        Options
	store    writer.OnceStore
	outboxes map[string]*writer.Writer // nil means every outbox
	every    *writer.Writer
	there    sync.Map                  // names of outboxes that got messages, if every one is served
	writers  map[string]*writer.Writer // by inbox
	buffered atomic.Int64
	parsing  chan struct{} // limits how many large requests are parsed at a time: parsing a refused one may take many times its size
	server   *http.Server
	drain    func()
	drained  chan struct{}
}

// New begins to listen. The caller closes the store after Run.
func New(store writer.OnceStore, o Options) (*Server, error) {
	o.MaxBody, o.MaxBuffered = cmp.Or(o.MaxBody, 16<<20), cmp.Or(o.MaxBuffered, 256<<20)
	o.MaxWait, o.Logger = cmp.Or(o.MaxWait, 2*time.Second), cmp.Or(o.Logger, slog.Default())
	s := &Server{o: o, store: store, writers: map[string]*writer.Writer{}, parsing: make(chan struct{}, runtime.GOMAXPROCS(0)), drained: make(chan struct{})}
	s.drain = sync.OnceFunc(func() { close(s.drained) })
	var credentials []web.Credential
	if len(o.Outboxes) == 0 {
		s.every = s.writer("")
	} else {
		s.outboxes = map[string]*writer.Writer{}
	}
	for _, one := range o.Outboxes {
		s.outboxes[one.Name] = s.writer(one.Inbox)
		if one.Token != "" {
			credentials = append(credentials, web.Credential{Secret: one.Token, Name: one.Name})
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /outboxes/{name}/messages", s.take)
	mux.HandleFunc("/outboxes/{name}/messages", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", "POST")
		(&Refusal{Error: "messages are sent with POST", code: http.StatusMethodNotAllowed}).write(w)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		(&Refusal{Error: "there is nothing here", Hint: "POST /outboxes/NAME/messages takes messages", code: http.StatusNotFound}).write(w)
	})
	server, err := web.Serve(web.Options{Listen: o.Listen, Credentials: credentials, MaxBody: o.MaxBody, Logger: o.Logger}, mux)
	if err != nil {
		return nil, err
	}
	s.server = server
	o.Logger.Info("taking messages", "url", "http://"+server.Addr+"/outboxes/{name}/messages", "tokens", len(credentials))
	return s, nil
}

func (s *Server) writer(inbox string) *writer.Writer {
	w := s.writers[inbox]
	if w == nil {
		var to writer.Store = s.store
		if inbox != "" {
			to = writer.Once(s.store, inbox)
		}
		w = writer.New(to, s.o.Writer)
		s.writers[inbox] = w
	}
	return w
}

// Addr is the address at which it listens.
func (s *Server) Addr() string { return s.server.Addr }

// Drain makes Run return once the requests in progress are answered.
func (s *Server) Drain() { s.drain() }

// Close ends a Server that was not run, or that has not ended.
func (s *Server) Close() { _ = s.server.Close() }

// Run returns nil after Drain. When ctx ends, requests without an answer are cut off.
func (s *Server) Run(ctx context.Context) error {
	select {
	case <-s.drained:
	case <-ctx.Done():
	}
	err := web.Drain(ctx, s.server)
	for _, w := range s.writers {
		err = errors.Join(err, w.Close(ctx))
	}
	return err
}

// Refusal is the body of every answer but 200.
type Refusal struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
	// Line of the input, or position in a batch of events, from 1.
	Line int `json:"line,omitempty"`
	code int
}

func (r *Refusal) write(w http.ResponseWriter) {
	if r.code == http.StatusTooManyRequests || r.code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	answer(w, r.code, r)
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

var errBusy = errors.New("there is no room: earlier requests are still being written")

func (s *Server) take(w http.ResponseWriter, r *http.Request) {
	began, name, code := time.Now(), r.PathValue("name"), http.StatusOK
	n, refusal := s.accept(r, name)
	if refusal == nil {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"accepted":`+strconv.Itoa(n)+"}\n")
	} else {
		refusal.write(w)
		code = refusal.code
	}
	if s.o.Observer != nil {
		if !s.isThere(name, code, n) {
			name = ""
		}
		s.o.Observer.Answered(name, code, n, time.Since(began))
	}
}

// isThere reports whether an outbox of that name is known to exist: it is listed, or it got a message. A label for every
// name that a client invents would be unbounded.
func (s *Server) isThere(name string, code, messages int) bool {
	if code == http.StatusForbidden || code == http.StatusNotFound {
		return false
	}
	if s.outboxes != nil {
		return s.outboxes[name] != nil
	}
	if code == http.StatusOK && messages > 0 {
		s.there.Store(name, true)
	}
	_, there := s.there.Load(name)
	return there
}

// accept returns how many messages of a request are committed.
func (s *Server) accept(r *http.Request, name string) (int, *Refusal) {
	to, refusal := s.allowed(r, name)
	if refusal != nil {
		return 0, refusal
	}
	body := &held{ReadCloser: r.Body, s: s}
	r.Body = body
	defer func() { s.buffered.Add(-body.n) }()
	msgs, err := s.read(r)
	if err == nil {
		err = body.take(len(msgs) * messageRoom)
	}
	if err == nil {
		err = s.publish(r.Context(), to, name, msgs)
	}
	if err != nil {
		return 0, s.refused(name, err)
	}
	return len(msgs), nil
}

// held counts the received bytes of a request's body. An announced body takes no room until it arrives, so a slow client delays no
// other.
type held struct {
	io.ReadCloser
	s *Server
	n int64
}

func (h *held) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	return n, cmp.Or(h.take(n), err)
}

// take reserves more bytes for a request, until it is answered.
func (h *held) take(n int) error {
	h.n += int64(n)
	if all := h.s.buffered.Add(int64(n)); all > h.s.o.MaxBuffered && all > h.n {
		return errBusy
	}
	return nil
}

// allowed finds the writer of an outbox for a client that may write to it.
func (s *Server) allowed(r *http.Request, name string) (*writer.Writer, *Refusal) {
	to := s.every
	if s.outboxes != nil {
		to = s.outboxes[name]
	}
	if who := web.From(r); who != "" && who != name {
		return nil, &Refusal{Error: "the token is of another outbox", code: http.StatusForbidden}
	}
	if to == nil {
		return nil, &Refusal{Error: fmt.Sprintf("outbox %q takes no messages here", name), Hint: "list it under serve.outboxes", code: http.StatusNotFound}
	}
	return to, nil
}

// publish waits for room, up to the limit, and then for the commit.
func (s *Server) publish(ctx context.Context, to *writer.Writer, outbox string, msgs []penstock.Message) error {
	room, cancel := context.WithTimeout(ctx, s.o.MaxWait)
	defer cancel()
	wait, err := to.PublishAsync(room, outbox, msgs...)
	if errors.Is(err, context.DeadlineExceeded) {
		return errBusy
	}
	if err != nil {
		return err
	}
	return wait(ctx)
}

// refused turns an error into the answer for the client.
func (s *Server) refused(outbox string, err error) *Refusal {
	var (
		large   *http.MaxBytesError
		line    *lines.Error
		field   *penstock.FieldError
		hinted  *penstock.HintError
		unknown *mediaTypeError
		many    *lines.TooManyError
		r       = &Refusal{Error: err.Error(), code: http.StatusBadRequest}
	)
	if errors.As(err, &line) {
		r.Line, r.Error = line.Line, line.Err.Error()
	}
	if errors.As(err, &hinted) {
		r.Hint = hinted.Hint
	}
	switch {
	case errors.As(err, &large):
		r.Error, r.code = fmt.Sprintf("the request has more than %d bytes", large.Limit), http.StatusRequestEntityTooLarge
	case errors.As(err, &many):
		r.Hint, r.code = "send fewer at a time", http.StatusRequestEntityTooLarge
	case errors.As(err, &field):
		if r.Hint = field.Hint; field.Field == "payload" {
			r.code = http.StatusRequestEntityTooLarge
		}
	case errors.As(err, &unknown):
		r.code = http.StatusUnsupportedMediaType
	case errors.Is(err, errBusy):
		r.Error, r.code = errBusy.Error(), http.StatusTooManyRequests
	case line != nil, errors.Is(err, errRead):
	case errors.Is(err, penstock.ErrNoOutbox):
		r.Error, r.code = about.Outbox(err, "", outbox, "").Error(), http.StatusNotFound
	case s.store.RefusesContent(err):
		r.Error, r.code = "the database refused it: "+err.Error(), http.StatusUnprocessableEntity
	default:
		s.o.Logger.Error("cannot publish", "outbox", outbox, "err", err)
		r.Error, r.Hint, r.code = "the database does not answer as it should; the messages may have been committed", "send it again with the same ids", http.StatusServiceUnavailable
	}
	return r
}
