package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/terminal"
)

// act performs a form's action by the API's own route, and returns to a page that reports it.
func (c *Console) act(w http.ResponseWriter, r *http.Request, path string, body any, say func(answer any) (back, said string)) {
	i := slices.IndexFunc(routes, func(one route) bool { return one.method == "POST" && one.path == path })
	text, err := json.Marshal(body)
	var answer any
	switch {
	case i < 0:
		err = errNotFound
	case err == nil:
		answer, err = c.serve(routes[i], r, func(to any) error { return json.Unmarshal(text, to) })
	}
	if err != nil {
		c.fail(w, r, err)
		return
	}
	back, said := say(answer)
	separator := "?"
	if strings.Contains(back, "?") {
		separator = "&"
	}
	http.Redirect(w, r, c.o.BasePath+back+separator+"did="+url.QueryEscape(said), http.StatusSeeOther)
}

func (c *Console) deadAction(w http.ResponseWriter, r *http.Request) {
	d, _, err := c.deadData(&call{Request: r})
	if err != nil {
		c.fail(w, r, err)
		return
	}
	path, verb := ofQueue, r.PathValue("verb")
	if d.Kind == "subscription" {
		path = ofSubscription
	}
	if verb == "resend" {
		c.act(w, r, path+"/dead/resend", Resend{Numbers: d.Filter.Numbers, Discard: r.FormValue("discard") != ""}, func(answer any) (back, said string) {
			return d.URL + "/dead", "sent again as new: " + strings.Join(answer.(Resent).IDs, ", ")
		})
		return
	}
	c.act(w, r, path+"/dead/"+verb, Bulk{Filter: d.Filter, All: len(d.Filter.values()) == 0, After: d.After}, func(answer any) (back, said string) {
		done := answer.(Done)
		back = d.URL + "/dead"
		said = map[string]string{"retry": "sent back", "discard": "discarded"}[verb] + ": " + terminal.Count(d.SoFar+done.Done)
		v := url.Values{}
		if len(d.Filter.Numbers) == 0 {
			v = d.Filter.values()
		}
		if done.More {
			said += " so far; there may be more"
			back += "/" + verb
			v.Set("after", strconv.FormatInt(done.After, 10))
			v.Set("sofar", strconv.FormatInt(d.SoFar+done.Done, 10))
		}
		return strings.TrimSuffix(back+"?"+v.Encode(), "?"), said
	})
}

func (c *Console) queueAction(w http.ResponseWriter, r *http.Request) {
	queue := "/queues/" + url.PathEscape(r.PathValue("queue"))
	switch verb := r.PathValue("verb"); verb {
	case "pause", "resume":
		paused := verb == "pause"
		c.act(w, r, ofQueue+"/settings", Settings{Paused: &paused}, func(any) (string, string) { return queue, verb + "d" })
	case "pause-schedule", "resume-schedule", "run-schedule":
		verb = strings.TrimSuffix(verb, "-schedule")
		c.act(w, r, ofQueue+"/schedules/"+verb, Named{r.FormValue("name")}, func(answer any) (string, string) {
			if made, ran := answer.(Enqueued); ran {
				return queue, fmt.Sprintf("enqueued: job %d", made.ID)
			}
			return queue, verb + "d"
		})
	case "limits":
		var s Settings
		for name, to := range map[string]**int{"max_running": &s.MaxRunning, "max_attempts": &s.MaxAttempts} {
			n, err := strconv.Atoi(r.FormValue(name))
			if err != nil {
				c.fail(w, r, &penstock.FieldError{Field: name, Problem: fmt.Sprintf("is %q", r.FormValue(name)), Hint: "give a number"})
				return
			}
			*to = &n
		}
		c.act(w, r, ofQueue+"/settings", s, func(any) (string, string) { return queue, "limits set" })
	case "cancel", "retry":
		_ = r.ParseForm()
		var chosen Jobs
		for _, text := range r.Form["id"] {
			id, _ := strconv.ParseInt(text, 10, 64)
			chosen.IDs = append(chosen.IDs, id)
		}
		c.act(w, r, ofQueue+"/"+verb, chosen, func(answer any) (string, string) {
			return queue, map[string]string{"cancel": "cancelled: ", "retry": "to run now: "}[verb] + terminal.Count(answer.(Count).Done)
		})
	case "enqueue":
		delay, err := strconv.Atoi(cmp.Or(r.FormValue("delay_seconds"), "0"))
		if err != nil {
			c.fail(w, r, &penstock.FieldError{Field: "delay_seconds", Problem: fmt.Sprintf("is %q", r.FormValue("delay_seconds")), Hint: "give a number"})
			return
		}
		copied, _ := strconv.ParseInt(r.FormValue("copy_of"), 10, 64)
		job := ByHand{CopyOf: copied, Kind: r.FormValue("kind"), Key: r.FormValue("key"), Group: r.FormValue("group"), Delay: delay, Payload: r.FormValue("payload")}
		c.act(w, r, ofQueue+"/enqueue", job, func(answer any) (string, string) {
			return queue, fmt.Sprintf("enqueued: job %d", answer.(Enqueued).ID)
		})
	default:
		c.fail(w, r, errNotFound)
	}
}

func (c *Console) parkedAction(w http.ResponseWriter, r *http.Request) {
	var keys Keys
	if key := r.FormValue("key"); key != "" {
		keys.Keys = []string{key}
	}
	c.act(w, r, ofSubscription+"/parked/retry", keys, func(answer any) (string, string) {
		return outboxURL(r.PathValue("outbox")), "parked keys that are tried at once: " + terminal.Count(answer.(Count).Done)
	})
}

func (c *Console) giveUpAction(w http.ResponseWriter, r *http.Request) {
	number, _ := strconv.ParseInt(r.FormValue("number"), 10, 64)
	c.act(w, r, ofSubscription+"/parked/give-up", GiveUp{number, r.FormValue("reason")}, func(answer any) (string, string) {
		said := "given up: message " + r.FormValue("number")
		if answer.(Count).Done == 0 {
			said = "not given up: it does not wait for another attempt any more"
		}
		return outboxURL(r.PathValue("outbox")), said
	})
}

func (c *Console) publishAction(w http.ResponseWriter, r *http.Request) {
	message := ByHand{Topic: r.FormValue("topic"), Key: r.FormValue("key"), Payload: r.FormValue("payload")}
	c.act(w, r, "/outboxes/{outbox}/publish", message, func(any) (string, string) {
		return outboxURL(r.PathValue("outbox")), "published"
	})
}

// enqueue enqueues a job that an operator wrote.
func (c *Console) enqueue(ctx context.Context, r *call, b ByHand) (Enqueued, error) {
	if b.Topic != "" {
		return Enqueued{}, &penstock.FieldError{Field: "topic", Problem: "is given for a job", Hint: "leave it out: messages have topics"}
	}
	if b.Delay < 0 || b.Delay > maxDelay {
		return Enqueued{}, &penstock.FieldError{Field: "delay_seconds", Problem: fmt.Sprintf("is %d", b.Delay), Hint: fmt.Sprintf("use 0 to %d", maxDelay)}
	}
	job := penstock.NewJob{Kind: b.Kind, Key: b.Key, Group: b.Group, Headers: b.Headers, Payload: []byte(b.Payload)}
	if b.CopyOf != 0 {
		if b.Kind != "" || b.Key != "" || len(b.Headers) > 0 || b.Payload != "" {
			return Enqueued{}, &penstock.FieldError{Field: "copy_of", Problem: "is given with a kind, a key, headers or a payload", Hint: "leave them out: the copy has those of the job"}
		}
		store, ok := c.o.Store.(finders)
		if !ok {
			return Enqueued{}, errNoFinder
		}
		found, err := store.FindJobs(ctx, admin.Find{In: r.PathValue("queue"), ID: strconv.FormatInt(b.CopyOf, 10), Group: b.Group, Limit: 1})
		if err != nil || len(found) == 0 {
			return Enqueued{}, cmp.Or(err, errNotFound)
		}
		m := found[0].Message
		if found[0].Priority > penstock.MaxPriority {
			return Enqueued{}, &penstock.FieldError{Field: "copy_of", Problem: "names a message that waits for barriers, not a job", Hint: "publish another message to its outbox"}
		}
		for _, of := range []string{penstock.HeaderUniqueKey, penstock.HeaderOnConflict, penstock.HeaderDebounceMax, penstock.HeaderDeadline, penstock.HeaderHolds, penstock.HeaderWaitsFor} {
			delete(m.Headers, of) // with its unique key it would be the same job
		}
		job = penstock.NewJob{Key: m.Key, Group: found[0].Group, Priority: found[0].Priority, Headers: m.Headers, Payload: m.Payload}
	}
	if b.Delay > 0 {
		job.NotBefore = time.Now().Add(time.Duration(b.Delay) * time.Second)
	}
	made, err := c.o.Store.DriverQueue(r.PathValue("queue")).Enqueue(ctx, job)
	if err != nil {
		return Enqueued{}, err
	}
	return Enqueued{made[0].ID}, nil
}

const maxDelay = 366 * 24 * 60 * 60 // seconds

// publish publishes a message that an operator wrote.
func (c *Console) publish(ctx context.Context, r *call, b ByHand) (Count, error) {
	if b.Kind != "" || b.Group != "" || b.Delay != 0 || b.CopyOf != 0 {
		return Count{}, &penstock.FieldError{Field: "kind, group, delay_seconds or copy_of", Problem: "is given for a message", Hint: "leave them out: jobs have these"}
	}
	return Count{1}, c.o.Store.Publish(ctx, r.PathValue("outbox"), penstock.Message{Topic: b.Topic, Key: b.Key, Headers: b.Headers, Payload: []byte(b.Payload)})
}
