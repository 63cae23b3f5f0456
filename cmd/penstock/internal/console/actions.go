package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock"
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
	c.act(w, r, path+"/dead/"+verb, Bulk{Filter: d.Filter, After: d.After}, func(answer any) (back, said string) {
		done := answer.(Done)
		back = d.URL + "/dead"
		said = map[string]string{"retry": "sent back", "discard": "discarded"}[verb] + ": " + count(d.SoFar+done.Done, "", nil)
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
	case "cancel":
		id, _ := strconv.ParseInt(r.FormValue("id"), 10, 64)
		c.act(w, r, ofQueue+"/cancel", Jobs{IDs: []int64{id}}, func(answer any) (string, string) {
			return queue, "canceled: " + count(answer.(Count).Done, "", nil)
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
		return outboxURL(r.PathValue("outbox")), "parked keys that are tried at once: " + count(answer.(Count).Done, "", nil)
	})
}
