package console

import (
	"cmp"
	"context"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
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
}

var findParams = []string{"id", "key", "limit", "group", "state", "after"}

// asked is what a request searches for in an outbox or a queue.
func (r *call) asked(in string) (f admin.Find, err error) {
	f = admin.Find{In: in, ID: r.FormValue("id"), Key: r.FormValue("key"), Group: r.FormValue("group")}
	if (f.ID == "") == (f.Key == "") {
		return f, &penstock.FieldError{Field: "id", Problem: "and key are both missing, or both given", Hint: "look for one of them"}
	}
	f.Limit, err = r.int("limit", 25, 100)
	return f, err
}

func (c *Console) messages(ctx context.Context, r *call) (List[Life], error) {
	return c.find(ctx, r, r.PathValue("outbox"), finders.FindMessages)
}

// jobs are those of an id or a key, or a page of those that are in one state.
func (c *Console) jobs(ctx context.Context, r *call) (l List[Life], err error) {
	state := r.FormValue("state")
	if state == "" {
		return c.find(ctx, r, r.PathValue("queue"), finders.FindJobs)
	}
	store, ok := c.o.Store.(finders)
	if !ok {
		return l, errNotFound
	}
	if r.FormValue("id") != "" || r.FormValue("key") != "" {
		return l, &penstock.FieldError{Field: "state", Problem: "is given with an id or a key", Hint: "list a state, or look for one job"}
	}
	limit, err := r.int("limit", 25, 100)
	if err != nil {
		return l, err
	}
	found, next, err := store.ListJobs(ctx, admin.JobQuery{Queue: r.PathValue("queue"), State: state, Group: r.FormValue("group"), After: r.FormValue("after"), Limit: limit})
	l = List[Life]{c.lives(found), next}
	for i := range l.Items {
		l.Items[i].Payload = nil // not read
	}
	return l, err
}

func (c *Console) find(ctx context.Context, r *call, in string, find func(finders, context.Context, admin.Find) ([]admin.Found, error)) (l List[Life], err error) {
	f, err := r.asked(in)
	store, ok := c.o.Store.(finders)
	if err != nil || !ok {
		return l, cmp.Or(err, errNotFound)
	}
	found, err := find(store, ctx, f)
	return List[Life]{Items: c.lives(found)}, err
}

func (c *Console) lives(found []admin.Found) []Life {
	all := []Life{}
	for _, one := range found {
		m := one.Message
		all = append(all, Life{m.Seq, m.ID, m.Key, one.Group, m.Topic, m.CreatedAt, c.contents(m.Headers, m.Payload), one.Where})
	}
	return all
}

type findData struct {
	Kind, Of, URL, ID, Key, Group string
	State                         string // of a list of jobs
	States                        []string
	Asked                         bool
	Found                         List[Life]
}

// findPage has a form, and the result.
func (c *Console) findPage(ctx context.Context, r *call) (string, any, error) {
	d := findData{Kind: "message", Of: r.PathValue("outbox"), ID: r.FormValue("id"), Key: r.FormValue("key"), Group: r.FormValue("group")}
	look := c.messages
	d.URL = outboxURL(d.Of)
	if d.Of == "" {
		d.Kind, d.Of, look = "job", r.PathValue("queue"), c.jobs
		d.URL, d.State, d.States = jobsURL(d.Of), r.FormValue("state"), []string{"ready", "running", "delayed", "waiting"}
	}
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
