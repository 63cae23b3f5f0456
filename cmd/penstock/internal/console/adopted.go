package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/terminal"
)

// Adopted is a subscription over a table that an application has made.
type Adopted struct {
	Table, Subscription string
	Store               interface {
		Status(ctx context.Context) (admin.SubscriptionStatus, error)
		DeadLetters(ctx context.Context, q admin.DeadLetterQuery) ([]admin.DeadLetter, error)
		RetryDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error)
		DiscardDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error)
		parker
	}
}

// AdoptedStatus is the status of such a subscription, or why there is none. It is at most half a minute old: the table's rows have to be counted.
type AdoptedStatus struct {
	Table string `json:"table"`
	admin.SubscriptionStatus
	Error string `json:"error,omitempty"`
}

func (c *Console) lookAtAdopted() ([]AdoptedStatus, error) {
	all := []AdoptedStatus{}
	for _, a := range c.o.Adopted {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		s, err := a.Store.Status(ctx)
		cancel()
		one := AdoptedStatus{Table: a.Table, SubscriptionStatus: s}
		if err != nil { // the others are shown
			one.SubscriptionStatus, one.Error = admin.SubscriptionStatus{}, err.Error()
		}
		one.Subscription = a.Subscription
		all = append(all, one)
	}
	return all, nil
}

const ofTable = "/tables/{table}/{subscription}"

func tableURL(table, subscription string) string {
	return "/tables/" + url.PathEscape(table) + "/" + url.PathEscape(subscription)
}

func (c *Console) adoptedOf(r *call) (*Adopted, error) {
	for i := range c.o.Adopted {
		if a := &c.o.Adopted[i]; a.Table == r.PathValue("table") && a.Subscription == r.PathValue("subscription") {
			return a, nil
		}
	}
	return nil, errNotFound
}

// Numbered are dead letters by their numbers.
type Numbered struct {
	Numbers []int64 `json:"numbers"`
}

func tableRoutes() []route {
	bulk := func(verb string, act func(a *Adopted, ctx context.Context, q admin.DeadLetterQuery) (int, error)) route {
		return acts(ofTable+"/dead/"+verb, verb+" dead letters of an adopted table by their numbers", func(c *Console, ctx context.Context, r *call, b Numbered) (Count, error) {
			a, err := c.adoptedOf(r)
			if err == nil && len(b.Numbers) == 0 {
				err = &penstock.FieldError{Field: "numbers", Problem: "are missing", Hint: "give those that GET dead has listed"}
			}
			if err != nil {
				return Count{}, err
			}
			n, err := act(a, ctx, admin.DeadLetterQuery{Seqs: b.Numbers})
			return Count{int64(n)}, err
		})
	}
	return []route{
		reads(ofTable+"/dead", "Dead letters of an adopted table, by number", []string{"after", "limit"}, (*Console).deadOfTable),
		bulk("retry", func(a *Adopted, ctx context.Context, q admin.DeadLetterQuery) (int, error) {
			return a.Store.RetryDeadLetters(ctx, q)
		}),
		bulk("discard", func(a *Adopted, ctx context.Context, q admin.DeadLetterQuery) (int, error) {
			return a.Store.DiscardDeadLetters(ctx, q)
		}),
		reads(ofTable+"/parked", "Parked keys of an adopted table, those due soonest first", []string{"limit"}, (*Console).parked),
		acts(ofTable+"/parked/retry", "Have parked keys of an adopted table tried at once", (*Console).retryParked),
	}
}

func (c *Console) deadOfTable(ctx context.Context, r *call) (l List[DeadLetter], err error) {
	limit, after, err := r.page()
	a, failed := c.adoptedOf(r)
	if err = cmp.Or(err, failed); err != nil {
		return l, err
	}
	found, err := a.Store.DeadLetters(ctx, admin.DeadLetterQuery{AfterSeq: after, Limit: limit})
	return listOf(c.letters(found), limit, func(d DeadLetter) string { return strconv.FormatInt(d.Number, 10) }), err
}

type tableData struct {
	AdoptedStatus
	URL     string
	Keys    List[admin.ParkedKey]
	Letters List[DeadLetter]
}

func (c *Console) tablePage(ctx context.Context, r *call, s *Status) (string, any, error) {
	a, err := c.adoptedOf(r)
	if err != nil {
		return "", nil, err
	}
	d := tableData{AdoptedStatus: AdoptedStatus{Table: a.Table}, URL: tableURL(a.Table, a.Subscription)}
	d.Subscription = a.Subscription
	for _, one := range s.Adopted {
		if one.Table == a.Table && one.Subscription == a.Subscription {
			d.AdoptedStatus = one
		}
	}
	if d.Error != "" { // it has no subscription yet, or the table does not fit
		return "Adopted table " + a.Table, d, nil
	}
	if d.Keys, err = c.parked(ctx, r); err != nil {
		return "", nil, err
	}
	d.Letters, err = c.deadOfTable(ctx, r)
	return "Adopted table " + a.Table, d, err
}

// tableAction is a form of the page: retry or discard a dead letter, or try a parked key now.
func (c *Console) tableAction(w http.ResponseWriter, r *http.Request) {
	back := tableURL(r.PathValue("table"), r.PathValue("subscription"))
	said := func(what string) func(any) (string, string) {
		return func(answer any) (string, string) { return back, what + ": " + terminal.Count(answer.(Count).Done) }
	}
	verb := r.PathValue("verb")
	if verb == "parked" {
		c.act(w, r, ofTable+"/parked/retry", Keys{Keys: []string{r.FormValue("key")}}, said("parked keys that are tried at once"))
		return
	}
	n, err := strconv.ParseInt(r.FormValue("number"), 10, 64)
	if err != nil {
		c.fail(w, r, &penstock.FieldError{Field: "number", Problem: fmt.Sprintf("is %q", r.FormValue("number")), Hint: "give the number of a dead letter"})
		return
	}
	c.act(w, r, ofTable+"/dead/"+verb, Numbered{Numbers: []int64{n}}, said(map[string]string{"retry": "sent back", "discard": "discarded"}[verb]))
}
