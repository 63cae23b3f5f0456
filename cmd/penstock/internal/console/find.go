package console

import (
	"cmp"
	"context"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

// Life is a message or a job with its history.
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

var findParams = []string{"id", "key", "limit", "group"}

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

func (c *Console) jobs(ctx context.Context, r *call) (List[Life], error) {
	return c.find(ctx, r, r.PathValue("queue"), finders.FindJobs)
}

func (c *Console) find(ctx context.Context, r *call, in string, find func(finders, context.Context, admin.Find) ([]admin.Found, error)) (l List[Life], err error) {
	f, err := r.asked(in)
	store, ok := c.o.Store.(finders)
	if err != nil || !ok {
		return l, cmp.Or(err, errNotFound)
	}
	found, err := find(store, ctx, f)
	for _, one := range found {
		m := one.Message
		l.Items = append(l.Items, Life{m.Seq, m.ID, m.Key, one.Group, m.Topic, m.CreatedAt, c.contents(m.Headers, m.Payload), one.Where})
	}
	return listOf(l.Items, f.Limit+1, nil), err
}

type findData struct {
	Kind, Of, URL, ID, Key, Group string
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
		d.URL = jobsURL(d.Of)
	}
	var err error
	if d.Asked = d.ID != "" || d.Key != ""; d.Asked {
		d.Found, err = look(ctx, r)
	}
	return "Find a " + d.Kind + " of " + d.Of, d, err
}
