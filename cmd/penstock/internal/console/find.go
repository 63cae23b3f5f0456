package console

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/terminal"
)

// Life is a message or a job with its history. One that was listed by its state has no payload.
type Life struct {
	Number    int64     `json:"number"`
	ID        string    `json:"id"`
	Key       string    `json:"key"`
	Group     string    `json:"group,omitempty"`
	Topic     string    `json:"topic,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	Contents
	Where []admin.Whereabouts `json:"where"`
	Wait  Wait                `json:"-"` // of a page about a job
}

// Wait is why a job does not start, in words, and the page that shows more.
type Wait struct{ Text, Page string }

var findParams = []string{"id", "key", "limit", "group", "state", "after", "kind", "newest", "older_than", "younger_than"}

// Lives is a page of messages or jobs.
type Lives struct {
	List[Life]
	// Looked is how many jobs of a state were looked at, if a filter narrows the choice. Others behind them may match: after leads there.
	Looked int64 `json:"looked_at,omitempty"`
}

// asked is the search of a request in an outbox or a queue.
func (r *call) asked(in string) (f admin.Find, err error) {
	f = admin.Find{In: in, ID: r.FormValue("id"), Key: r.FormValue("key"), Group: r.FormValue("group")}
	if (f.ID == "") == (f.Key == "") {
		return f, &penstock.FieldError{Field: "id", Problem: "and key are both missing, or both given", Hint: "look for one of them"}
	}
	f.Limit, err = r.int("limit", 25, 100)
	return f, err
}

func (c *Console) messages(ctx context.Context, r *call) (Lives, error) {
	return c.find(ctx, r, r.PathValue("outbox"), finders.FindMessages)
}

// jobs are those of an id or a key, or a page of those that are in one state.
func (c *Console) jobs(ctx context.Context, r *call) (l Lives, err error) {
	if r.FormValue("state") == "" {
		if l, err = c.find(ctx, r, r.PathValue("queue"), finders.FindJobs); err == nil {
			err = c.waitsFor(ctx, r.PathValue("queue"), l.Items)
		}
		return l, err
	}
	q, err := r.jobQuery()
	if err != nil {
		return l, err
	}
	found, err := c.o.Store.ListJobs(ctx, q)
	l.List = List[Life]{c.lives(found.Jobs), found.Next}
	if q.Filters() {
		l.Looked = int64(found.Looked)
	}
	for i := range l.Items {
		l.Items[i].Payload, l.Items[i].Where[0].Report = nil, nil // the one is not read, and the other may be long
	}
	return l, err
}

// jobQuery is the query of a request for the jobs of a state. Ages are relative, so that a later page means the same.
func (r *call) jobQuery() (q admin.JobQuery, err error) {
	q = admin.JobQuery{Queue: r.PathValue("queue"), State: r.FormValue("state"), Group: r.FormValue("group"), Kind: r.FormValue("kind"), Key: r.FormValue("key"), Newest: r.FormValue("newest") != "", After: r.FormValue("after")}
	if r.FormValue("id") != "" {
		return q, &penstock.FieldError{Field: "state", Problem: "is given with an id", Hint: "list a state, or look for one job"}
	}
	for name, to := range map[string]*time.Time{"older_than": &q.CreatedBefore, "younger_than": &q.CreatedAfter} {
		if text := r.FormValue(name); text != "" {
			age, err := time.ParseDuration(text)
			if err != nil || age <= 0 {
				return q, &penstock.FieldError{Field: name, Problem: fmt.Sprintf("is %q", text), Hint: "give an age as 90s, 15m or 24h"}
			}
			*to = time.Now().Add(-age)
		}
	}
	q.Limit, err = r.int("limit", 25, 100)
	return q, err
}

func (c *Console) find(ctx context.Context, r *call, in string, find func(finders, context.Context, admin.Find) ([]admin.Found, error)) (l Lives, err error) {
	f, err := r.asked(in)
	store, ok := c.o.Store.(finders)
	if err != nil || !ok {
		return l, cmp.Or(err, errNoFinder)
	}
	found, err := find(store, ctx, f)
	l.Items = c.lives(found)
	return l, err
}

func (c *Console) lives(found []admin.Found) []Life {
	all := []Life{}
	for _, one := range found {
		m := one.Message
		for i := range one.Where {
			one.Where[i].Report = c.shownOf(one.Where[i].Report)
		}
		all = append(all, Life{m.Seq, m.ID, m.Key, one.Group, m.Topic, m.CreatedAt, c.contents(m.Headers, m.Payload), one.Where, Wait{}})
	}
	return all
}

// waitsFor explains why jobs do not start.
func (c *Console) waitsFor(ctx context.Context, queue string, jobs []Life) error {
	type reason struct {
		word string
		Wait
	}
	page := jobsURL(queue)
	groups := map[string]reason{}
	for i := range jobs {
		switch w := &jobs[i].Where[0]; w.State {
		case "behind its key":
			w.WaitsFor, jobs[i].Wait = "key", Wait{"an earlier job of its key", page + "/jobs?" + url.Values{"key": {jobs[i].Key}}.Encode()}
		case "waiting for barriers":
			if strings.Contains(w.WaitsFor, " dead") {
				jobs[i].Wait = Wait{"the dead letters of the queue", page + "/dead"}
			}
		case "ready":
			why, known := groups[jobs[i].Group]
			if !known {
				s, err := c.readStatus(ctx)
				if err != nil {
					return err
				}
				if q := slices.IndexFunc(s.Queues, func(q admin.QueueStatus) bool { return q.Queue == queue }); q >= 0 {
					why = reason{s.Queues[q].WaitsFor(), queueWait(&s.Queues[q])}
				}
				if why.word == "" {
					found, err := c.o.Store.QueueGroups(ctx, queue, before(jobs[i].Group), 1)
					if err != nil {
						return err
					}
					if len(found) > 0 && found[0].Group == jobs[i].Group {
						why = reason{found[0].WaitsFor(), groupWait(queue, &found[0])}
					}
				}
				groups[jobs[i].Group] = why
			}
			if w.WaitsFor, jobs[i].Wait = why.word, why.Wait; why.word != "" || jobs[i].Key == "" {
				continue
			}
			same, err := c.o.Store.(finders).FindJobs(ctx, admin.Find{In: queue, Key: jobs[i].Key, Limit: 25})
			if err != nil {
				return err
			}
			if r := slices.IndexFunc(same, func(f admin.Found) bool { return f.Where[0].State == "running" }); r >= 0 {
				id := same[r].Message.Seq
				w.WaitsFor, jobs[i].Wait = "key", Wait{fmt.Sprintf("job %d of its key, which is running", id), fmt.Sprintf("%s/jobs?id=%d", page, id)}
			}
		}
	}
	return nil
}

func queueWait(q *admin.QueueStatus) Wait {
	page := jobsURL(q.Queue)
	switch q.WaitsFor() {
	case "pause":
		return Wait{"the queue is paused", page}
	case "limit":
		return Wait{"the queue is at its limit of " + terminal.Plural(int64(*q.MaxRunning), "running job"), page + "/jobs?state=running"}
	case "rate":
		return Wait{fmt.Sprintf("the queue is over its rate of %s in %v", terminal.Count(int64(q.Rate.Jobs)), q.Rate.Per), page}
	}
	return Wait{}
}

func groupWait(queue string, g *admin.GroupStatus) Wait {
	page, l := jobsURL(queue), g.Limits
	group := "the group"
	if g.Group == "" {
		group = "the group without a name"
	}
	first := page + "?" + url.Values{"after": {before(g.Group)}}.Encode() + "#groups"
	switch g.WaitsFor() {
	case "hold":
		return Wait{group + " is " + limits(l)[0], first}
	case "limit":
		return Wait{group + " is at its limit of " + terminal.Plural(int64(l.MaxRunning), "running job"), page + "/jobs?" + url.Values{"state": {"running"}, "group": {g.Group}}.Encode()}
	case "rate":
		return Wait{fmt.Sprintf("%s is over its rate of %s in %v", group, terminal.Count(int64(l.Rate.Jobs)), l.Rate.Per), first}
	}
	return Wait{}
}

// before is a name behind which a group is the next one.
func before(group string) string {
	last, size := utf8.DecodeLastRuneInString(group)
	rest := group[:len(group)-size]
	if last--; last < 1 || !utf8.ValidRune(last) {
		return rest
	}
	return rest + string(last) + string(utf8.MaxRune)
}

type findData struct {
	Kind, Of, URL, ID, Key, Group   string
	State                           string // of a list of jobs
	Tabs                            []tab
	JobKind, OlderThan, YoungerThan string       // filters of such a list
	Newest                          bool         // its order
	Query                           template.URL // all of these, encoded
	Asked                           bool
	Finds                           bool // by an id or a key
	Found                           Lives
}

// findPage has a form, and the result.
func (c *Console) findPage(ctx context.Context, r *call) (string, any, error) {
	d := findData{Kind: "message", Of: r.PathValue("outbox"), ID: r.FormValue("id"), Key: r.FormValue("key"), Group: r.FormValue("group")}
	look := c.messages
	d.URL = outboxURL(d.Of)
	if d.Of == "" {
		d.Kind, d.Of, look = "job", r.PathValue("queue"), c.jobs
		if d.ID != "" { // from the form of a list
			r.Form.Del("state")
			r.Form.Del("key")
			d.Key = ""
		}
		d.URL, d.State = jobsURL(d.Of), r.FormValue("state")
		d.Tabs = c.tabs(ctx, d.Of, d.State)
	}
	d.JobKind, d.OlderThan, d.YoungerThan, d.Newest = r.FormValue("kind"), r.FormValue("older_than"), r.FormValue("younger_than"), r.FormValue("newest") != ""
	filter := url.Values{}
	for _, name := range []string{"group", "key", "kind", "older_than", "younger_than", "newest"} {
		if value := r.FormValue(name); value != "" {
			filter.Set(name, value)
		}
	}
	d.Query = template.URL(filter.Encode())
	_, d.Finds = c.o.Store.(finders)
	var err error
	if d.Asked = d.ID != "" || d.Key != "" || d.State != ""; d.Asked {
		d.Found, err = look(ctx, r)
	}
	title := "Find a " + d.Kind + " of " + d.Of
	switch {
	case d.State != "":
		title = "Jobs of " + d.Of + ": " + d.State
	case d.Kind == "job" && d.ID != "":
		title = "Job " + d.ID + " of " + d.Of
	}
	return title, d, err
}
