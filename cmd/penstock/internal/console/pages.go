package console

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/terminal"
)

//go:embed pages static
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"count": terminal.CountOf, "size": terminal.Size, "age": age, "since": func(t time.Time) string { return age(time.Since(t)) }, "ago": func(t time.Time) string {
		if d := time.Since(t); d >= time.Second {
			return age(d) + " ago"
		}
		return "now"
	}, "lease": func(t time.Time) string {
		if time.Until(t) <= 0 {
			return "its lease has ended"
		}
		return "lease for " + age(time.Until(t))
	}, "until": func(t time.Time) string { return age(time.Until(t)) },
	"seg": url.PathEscape, "pretty": pretty, "hex": hexDump, "seconds": func(s float64) string { return age(time.Duration(s * float64(time.Second))) }, "spark": spark, "latest": latest, "millis": millis, "grouped": terminal.Count, "firstline": func(f []penstock.Failure) string {
		line, _, _ := strings.Cut(penstock.LastError(f), "\n")
		return line
	}, "keeps": func(s penstock.QueueSettings) bool { return s.KeepDone != nil && *s.KeepDone > 0 }, "paused": func(s penstock.QueueSettings) bool { return s.Paused != nil && *s.Paused },
	"limit": func(n *int) string {
		if n == nil || *n == 0 {
			return ""
		}
		return terminal.Count(int64(*n))
	},
	"limits": limits, "plain": plain,
	"form": func(base, of, what, id, key, group string) map[string]any {
		action := base + of + "/messages"
		if what == "job" {
			action = base + of + "/jobs"
		}
		return map[string]any{"Action": action, "What": strings.ToUpper(what[:1]) + what[1:], "ID": id, "Key": key, "Group": group, "Grouped": what == "job"}
	},
	"dict": func(pairs ...any) map[string]any {
		d := map[string]any{}
		for i := 0; i+1 < len(pairs); i += 2 {
			d[pairs[i].(string)] = pairs[i+1]
		}
		return d
	}, "ring": ring, "width": func(s []admin.SegmentStatus) int { return 20 * len(s) }, "rate": func(r float64) string { return strconv.FormatFloat(r, 'f', 1, 64) }, "jobs": jobsURL, "outbox": outboxURL, "letters": lettersURL, "table": tableURL,
}).ParseFS(files, "pages/*.html"))

// page is the data of every template.
type page struct {
	Base, Title, Name string
	Up                string // the list of databases, if there are several
	Here              string // the path within the console; empty for the list of databases
	Operate           bool
	Live              bool // updates itself
	At                time.Time
	Did               string
	Data              any
}

// In reports whether the page is below a path.
func (p page) In(path string) bool { return strings.HasPrefix(p.Here, path) }

func (c *Console) pages() {
	static, _ := fs.Sub(files, "static")
	c.mux.Handle("GET /static/", http.StripPrefix("/static/", http.FileServerFS(static)))
	overview := c.shows("overview", true, c.withStatus(c.overview))
	c.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		c.awaitFindings(r.Context())
		overview(w, r)
	})
	c.mux.HandleFunc("POST /check", func(w http.ResponseWriter, r *http.Request) {
		c.findings.again()
		c.answers.forget()
		http.Redirect(w, r, c.o.BasePath+"/", http.StatusSeeOther)
	})
	c.page("GET /outboxes/{outbox}", "outbox", true, c.withStatus(c.outbox))
	c.page("GET /queues/{queue}", "queue", true, c.withStatus(c.queue))
	c.page("GET "+ofTable, "table", true, c.withStatus(c.tablePage))
	c.mux.HandleFunc("POST "+ofTable+"/{verb}", c.tableAction)
	c.page("GET /workers", "workers", true, c.withStatus(c.workersPage))
	c.page("GET "+ofQueue+"/done", "done", false, c.donePage)
	c.page("GET /inboxes/{consumer}", "inbox", true, c.withStatus(c.inbox))
	c.page("GET /outboxes/{outbox}/messages", "find", false, c.findPage)
	c.page("GET "+ofQueue+"/jobs", "find", false, c.findPage)
	for _, of := range []string{ofQueue, ofSubscription} {
		c.page("GET "+of+"/dead", "dead", false, c.deadPage)
		c.page("GET "+of+"/dead/{verb}", "confirm", false, c.confirm)
		c.mux.HandleFunc("POST "+of+"/dead/{verb}", c.deadAction)
	}
	c.mux.HandleFunc("POST /queues/{queue}/{verb}", c.queueAction)
	c.mux.HandleFunc("POST "+ofSubscription+"/parked/retry", c.parkedAction)
	c.mux.HandleFunc("POST "+ofSubscription+"/parked/give-up", c.giveUpAction)
	c.mux.HandleFunc("POST /outboxes/{outbox}/publish", c.publishAction)
	c.page("/", "missing", false, func(context.Context, *call) (string, any, error) { return "", nil, errNotFound })
}

// page serves a template with the data that read returns, and a title.
func (c *Console) page(pattern, name string, live bool, read func(ctx context.Context, r *call) (title string, data any, err error)) {
	c.mux.HandleFunc(pattern, c.shows(name, live, read))
}

// withStatus is for a page that shows a part of the status.
func (c *Console) withStatus(read func(context.Context, *call, *Status) (string, any, error)) func(context.Context, *call) (string, any, error) {
	return func(ctx context.Context, r *call) (string, any, error) {
		s, err := c.readStatus(ctx)
		if err != nil {
			return "", nil, err
		}
		return read(ctx, r, s)
	}
}

// shows is the handler of such a page.
func (c *Console) shows(name string, live bool, read func(ctx context.Context, r *call) (title string, data any, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		found, err := c.shown(r, func(ctx context.Context, r *call) (a answer, err error) {
			a.title, a.data, err = read(ctx, r)
			return a, err
		})
		if err != nil {
			c.fail(w, r, err)
			return
		}
		c.show(w, r, http.StatusOK, name, page{Title: found.title, Live: live, Data: found.data, Did: r.URL.Query().Get("did")})
	}
}

func (c *Console) show(w http.ResponseWriter, r *http.Request, code int, name string, p page) {
	p.Base, p.Up, p.Name, p.Here = c.o.BasePath, c.o.Up, c.o.Title, r.URL.Path
	c.showAt(w, r, code, name, p)
}

func (c *Console) showAt(w http.ResponseWriter, r *http.Request, code int, name string, p page) {
	p.Operate, p.At, p.Name = mayOperate(r), time.Now().UTC(), cmp.Or(p.Name, "Penstock")
	var body bytes.Buffer
	if err := templates.ExecuteTemplate(&body, name+".html", p); err != nil {
		c.o.Logger.Error("console: a page cannot be shown", "page", name, "err", err)
		http.Error(w, "this page cannot be shown; the log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(body.Bytes())
}

func (c *Console) fail(w http.ResponseWriter, r *http.Request, err error) {
	code, p := wrong(err)
	if code == http.StatusInternalServerError {
		c.o.Logger.Warn("console: cannot read", "path", r.URL.Path, "err", err)
	}
	c.show(w, r, code, "missing", page{Title: "It cannot be shown", Data: p})
}

type overviewData struct {
	*Status
	Findings []doctor.Finding
	Skipped  []doctor.Finding  // checks that the role may not make
	Looked   time.Time         // when they were found
	Looking  bool              // there are no findings yet
	Links    map[string]string // to the subjects of findings
	Unknown  string            // why there are none
	History  map[string][]float64
	Trends   map[string]Trend
}

// Sampled reports whether the database keeps samples.
func (d overviewData) Sampled() bool { return len(d.Trends) > 0 }

func (c *Console) overview(ctx context.Context, _ *call, s *Status) (string, any, error) {
	d := overviewData{Status: s, History: c.history.all(), Trends: c.trends(ctx), Links: s.links()}
	findings, looked, err := c.lastFindings()
	if d.Looked, d.Looking = looked, looked.IsZero(); err != nil {
		d.Unknown = err.Error()
	}
	for _, f := range findings {
		if f.Severity == doctor.Critical || f.Severity == doctor.Warning {
			d.Findings = append(d.Findings, f)
		} else if f.Check == doctor.CheckNotLookedAt {
			d.Skipped = append(d.Skipped, f)
		}
	}
	return "Overview", d, nil
}

// links lead to the subjects of findings.
func (s *Status) links() map[string]string {
	links := map[string]string{}
	for _, a := range s.Adopted {
		links[a.Table] = tableURL(a.Table, a.Subscription)
		links[a.Subscription] = links[a.Table]
	}
	for _, b := range s.Inboxes {
		links[b.Consumer] = "/inboxes/" + url.PathEscape(b.Consumer)
	}
	for _, q := range s.Queues {
		links[q.Queue] = jobsURL(q.Queue)
	}
	for _, o := range s.Outboxes {
		links[o.Outbox] = outboxURL(o.Outbox)
		for _, sub := range o.Subscriptions {
			links[o.Outbox+"/"+sub.Subscription] = outboxURL(o.Outbox)
		}
	}
	return links
}

type outboxData struct {
	admin.OutboxStatus
	Finds       bool
	Held        []doctor.HeldSegment
	HeldUnknown string // why it is unknown
	Parked      map[string][]admin.ParkedKey
	Waits       map[string]Waits
	Trends      map[string]Trend
	History     map[string][]float64
}

func (c *Console) outbox(ctx context.Context, r *call, s *Status) (_ string, _ any, err error) {
	name := r.PathValue("outbox")
	i := slices.IndexFunc(s.Outboxes, func(o admin.OutboxStatus) bool { return o.Outbox == name })
	if i < 0 {
		return "", nil, s.without("outboxes", penstock.ErrNoOutbox)
	}
	_, finds := c.o.Store.(finders)
	d := outboxData{OutboxStatus: s.Outboxes[i], Finds: finds, Parked: map[string][]admin.ParkedKey{}, Waits: map[string]Waits{}, Trends: map[string]Trend{}, History: c.history.all()}
	if store, ok := c.o.Store.(holders); ok {
		if d.Held, err = store.HeldSegments(ctx); err != nil { // a role that may not read it sees the rest
			d.HeldUnknown = err.Error()
		}
		d.Held = slices.DeleteFunc(d.Held, func(h doctor.HeldSegment) bool { return h.Outbox != name })
	}
	for _, sub := range d.Subscriptions {
		d.Waits[sub.Subscription] = c.waits(name + "/" + sub.Subscription)
		d.Trends[sub.Subscription] = c.trend(ctx, name+"/"+sub.Subscription)
		if sub.ParkedKeys == 0 {
			continue
		}
		if d.Parked[sub.Subscription], err = c.o.Store.ParkedKeys(ctx, name, sub.Subscription, 50); err != nil {
			return "", nil, err
		}
	}
	return "Outbox " + name, d, nil
}

type queueData struct {
	admin.QueueStatus
	Finds     bool
	Groups    List[admin.GroupStatus]
	Running   List[Running]
	Schedules List[Schedule]
	Unseen    map[string]string // why parts are not shown
	Waits     Waits
	Trend     Trend
	History   map[string][]float64
}

func (c *Console) queue(ctx context.Context, r *call, s *Status) (_ string, _ any, err error) {
	name := r.PathValue("queue")
	i := slices.IndexFunc(s.Queues, func(q admin.QueueStatus) bool { return q.Queue == name })
	if i < 0 {
		return "", nil, s.without("queues", penstock.ErrNoQueue)
	}
	d := queueData{QueueStatus: s.Queues[i], Waits: c.waits(name), Trend: c.trend(ctx, name), History: c.history.all()}
	_, d.Finds = c.o.Store.(finders)
	if d.Groups, err = c.groups(ctx, r); err != nil {
		return "", nil, err
	}
	var refused [2]error
	d.Running, refused[0] = c.running(ctx, r)
	d.Running.Items = d.Running.Items[:min(len(d.Running.Items), 50)]
	d.Schedules, refused[1] = c.schedules(ctx, r)
	d.Unseen = map[string]string{}
	for i, part := range []string{"running", "schedules"} {
		if d.Unseen[part] = refusal(refused[i]); refused[i] != nil && !pgerror.IsForbidden(refused[i]) {
			return "", nil, refused[i]
		}
	}
	return "Queue " + name, d, nil
}

// Limited reports whether a group of the page has limits or is held.
func (d queueData) Limited() bool {
	return slices.ContainsFunc(d.Groups.Items, func(g admin.GroupStatus) bool { return g.Limits != nil })
}

// limits describes the limits of a group, and its hold, in lines.
func limits(l *admin.GroupLimits) (lines []string) {
	if l == nil {
		return nil
	}
	if !l.Until.IsZero() {
		lines = append(lines, strings.TrimSuffix("held until "+l.Until.UTC().Format("2006-01-02 15:04:05")+" UTC: "+l.Reason, ": "))
	}
	if l.MaxRunning > 0 {
		lines = append(lines, terminal.Count(int64(l.MaxRunning))+" at a time")
	}
	if r := l.Rate; r.Jobs > 0 {
		lines = append(lines, fmt.Sprintf("%s in %v, %s may start now", terminal.Count(int64(r.Jobs)), r.Per, terminal.Count(int64(l.Tokens))))
	}
	return lines
}

// tab leads to the jobs of a queue that are in one state.
type tab struct {
	Name, URL, Count string
	Here             bool
}

// tabs are those of a queue, with the counts of the status if there is one.
func (c *Console) tabs(ctx context.Context, queue, here string) (all []tab) {
	counts := map[string]string{}
	if s, err := c.readStatus(ctx); err == nil {
		if i := slices.IndexFunc(s.Queues, func(q admin.QueueStatus) bool { return q.Queue == queue }); i >= 0 {
			q := &s.Queues[i]
			counts = map[string]string{"ready": terminal.CountOf(q.Ready, "ready", q.AtLeast), "running": terminal.CountOf(q.Running, "running", q.AtLeast), "delayed": terminal.CountOf(q.Delayed, "delayed", q.AtLeast), "waiting": terminal.CountOf(q.Waiting, "waiting", q.AtLeast), "dead": terminal.CountOf(q.DeadLetters, "dead_letters", q.AtLeast)}
		}
	}
	for _, name := range []string{"ready", "running", "delayed", "waiting", "dead", "done"} {
		at := jobsURL(queue) + "/jobs?state=" + name
		if name == "dead" || name == "done" {
			at = jobsURL(queue) + "/" + name
		}
		all = append(all, tab{name, at, counts[name], name == here})
	}
	return all
}

type doneData struct {
	Queue, ID, Kind string
	Jobs            List[admin.DoneJob]
	Tabs            []tab
}

// Query is the choice, encoded.
func (d doneData) Query() template.URL {
	v := url.Values{}
	for name, text := range map[string]string{"id": d.ID, "kind": d.Kind} {
		if text != "" {
			v.Set(name, text)
		}
	}
	return template.URL(v.Encode())
}

// Took is p50 and p99 of the time that the listed jobs ran, or empty.
func (d doneData) Took() (p []time.Duration) {
	var all []time.Duration
	for i := range d.Jobs.Items {
		if job := &d.Jobs.Items[i]; !job.ClaimedAt.IsZero() {
			all = append(all, job.Duration())
		}
	}
	slices.Sort(all)
	for _, percent := range []int{50, 99} {
		if n := len(all); n > 0 {
			p = append(p, all[(n*percent-1)/100])
		}
	}
	return p
}

func (c *Console) donePage(ctx context.Context, r *call) (string, any, error) {
	d := doneData{Queue: r.PathValue("queue"), ID: r.FormValue("id"), Kind: r.FormValue("kind")}
	d.Tabs = c.tabs(ctx, d.Queue, "done")
	var err error
	d.Jobs, err = c.done(ctx, r)
	return "Done jobs of " + d.Queue, d, err
}

type inboxData struct {
	admin.InboxStatus
	Held List[HeldMessage]
	Gaps List[admin.InboxGap]
}

func (c *Console) inbox(ctx context.Context, r *call, s *Status) (_ string, _ any, err error) {
	name := r.PathValue("consumer")
	i := slices.IndexFunc(s.Inboxes, func(b admin.InboxStatus) bool { return b.Consumer == name })
	if i < 0 {
		return "", nil, s.without("inboxes", penstock.ErrNoInbox)
	}
	d := inboxData{InboxStatus: s.Inboxes[i]}
	if d.Held, err = c.held(ctx, r); err != nil {
		return "", nil, err
	}
	d.Gaps, err = c.gaps(ctx, r)
	return "Inbox " + name, d, err
}

type deadData struct {
	Kind, Of, URL string
	Filter        Filter
	Query         template.URL // the filter, encoded
	Causes        Causes
	Page          List[DeadLetter]
	Filtered      bool
	Verb          string // of the action to confirm
	Would         Done
	After, SoFar  int64 // where an action continues, and how many it has done
	Tabs          []tab // of a queue
}

// Values describe the filter for people.
func (d deadData) Values() url.Values { return d.Filter.values() }

// With is the filter, encoded, with a part of the errors.
func (d deadData) With(part string) template.URL {
	d.Filter.Error = part
	return template.URL(d.Filter.values().Encode())
}

func (c *Console) deadData(r *call) (d deadData, b box, err error) {
	b = c.boxOf(r)
	d.Kind, d.Of = b.name()
	d.URL = jobsURL(r.PathValue("queue"))
	if d.Kind == "subscription" {
		d.URL = lettersURL(r.PathValue("outbox"), r.PathValue("subscription"))
	}
	d.Filter, err = filterOf(r.URL.Query())
	v := d.Filter.values()
	d.Query, d.Filtered = template.URL(v.Encode()), len(v) > 0
	d.After, _ = strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	d.SoFar, _ = strconv.ParseInt(r.URL.Query().Get("sofar"), 10, 64)
	return d, b, err
}

func (c *Console) deadPage(ctx context.Context, r *call) (string, any, error) {
	d, b, err := c.deadData(r)
	if err != nil {
		return "", nil, err
	}
	if d.Causes, err = c.causesOf(ctx, b, d.Filter); err != nil {
		return "", nil, err
	}
	if d.Kind == "queue" {
		d.Tabs = c.tabs(ctx, d.Of, "dead")
	}
	d.Page, err = c.dead(ctx, r)
	return "Dead letters of " + d.Of, d, err
}

// confirm shows the effect of an action: how many dead letters match.
func (c *Console) confirm(ctx context.Context, r *call) (string, any, error) {
	d, b, err := c.deadData(r)
	if err != nil {
		return "", nil, err
	}
	d.Verb = r.PathValue("verb")
	if d.Verb != "retry" && d.Verb != "discard" {
		return "", nil, errNotFound
	}
	if r.FormValue("chosen") != "" && len(d.Filter.Numbers) == 0 {
		return "", nil, &penstock.FieldError{Field: "number", Problem: "is missing", Hint: "choose at least one dead letter"}
	}
	d.Would, err = c.onAll(ctx, b, d.Filter, d.After, false, true)
	return map[string]string{"retry": "Retry", "discard": "Discard"}[d.Verb] + " dead letters of " + d.Of, d, err
}

func outboxURL(outbox string) string { return "/outboxes/" + url.PathEscape(outbox) }

func jobsURL(queue string) string { return "/queues/" + url.PathEscape(queue) }

func lettersURL(outbox, subscription string) string {
	return outboxURL(outbox) + "/subscriptions/" + url.PathEscape(subscription)
}
