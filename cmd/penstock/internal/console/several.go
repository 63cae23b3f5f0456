package console

import (
	"context"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/terminal"
)

// Several is a console for several databases: a page that lists them, and each below its own path.
type Several struct {
	base, title string
	names       []string
	of          []*Console
	mux         *http.ServeMux
}

// NewSeveral makes a console for each of the options. Their titles differ, and are their paths below basePath.
func NewSeveral(basePath, title string, all []Options) *Several {
	s := &Several{base: strings.TrimRight(basePath, "/"), title: title, mux: http.NewServeMux()}
	for _, o := range all {
		o.BasePath, o.Up = s.base+"/"+o.Title, s.base+"/"
		c := New(o)
		s.names, s.of = append(s.names, o.Title), append(s.of, c)
		s.mux.Handle(o.BasePath+"/", c)
	}
	static, _ := fs.Sub(files, "static")
	s.mux.Handle("GET "+s.base+"/static/", http.StripPrefix(s.base+"/static/", http.FileServerFS(static)))
	s.mux.HandleFunc("GET "+s.base+"/{$}", s.list)
	return s
}

// Watch calls Watch of each console.
func (s *Several) Watch(ctx context.Context) {
	var all sync.WaitGroup
	for _, c := range s.of {
		all.Go(func() { c.Watch(ctx) })
	}
	all.Wait()
}

func (s *Several) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w)
	s.mux.ServeHTTP(w, r)
}

// database is a line of the list.
type database struct {
	Name, Base, Unknown  string
	Backlog, Ready, Dead int64
	More                 []string // backlog, ready, dead: counted up to this
	Oldest               time.Duration
	Critical, Warnings   int
	Outboxes, Queues     int
}

// list asks all of them at the same time, so one that is down delays only its own answer.
func (s *Several) list(w http.ResponseWriter, r *http.Request) {
	found := make([]database, len(s.of))
	var all sync.WaitGroup
	for i, c := range s.of {
		all.Go(func() { found[i] = c.summary(r.Context(), s.names[i]) })
	}
	all.Wait()
	s.of[0].showAt(w, r, http.StatusOK, "databases", page{Base: s.base, Name: s.title, Title: "Databases", Live: true, Data: found})
}

func (c *Console) summary(ctx context.Context, name string) database {
	d := database{Name: name, Base: c.o.BasePath}
	status, err := c.readStatus(ctx)
	if err != nil {
		_, p := wrong(err)
		d.Unknown = p.Error
		return d
	}
	d.Outboxes, d.Queues = len(status.Outboxes), len(status.Queues)
	add := func(to *int64, n int64, as, name string, atLeast []string) {
		*to += n
		if strings.HasSuffix(terminal.CountOf(n, name, atLeast), "+") {
			d.More = append(d.More, as)
		}
	}
	for _, o := range status.Outboxes {
		for _, sub := range o.Subscriptions {
			add(&d.Backlog, sub.Backlog, "backlog", "backlog", sub.AtLeast)
			add(&d.Dead, sub.DeadLetters, "dead", "dead_letters", sub.AtLeast)
			d.Oldest = max(d.Oldest, sub.OldestAge)
		}
	}
	for _, q := range status.Queues {
		add(&d.Ready, q.Ready, "ready", "ready", q.AtLeast)
		add(&d.Dead, q.DeadLetters, "dead", "dead_letters", q.AtLeast)
		d.Oldest = max(d.Oldest, q.OldestAge)
	}
	findings, _, _ := c.lastFindings()
	for _, f := range findings {
		switch f.Severity {
		case doctor.Critical:
			d.Critical++
		case doctor.Warning:
			d.Warnings++
		}
	}
	return d
}
