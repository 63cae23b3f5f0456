package previous

import (
	"container/list"
	"strings"
	"time"
)

// lasts remembers the trails of the most recently used keys. Not safe for concurrent use.
type lasts struct {
	most   int
	byKey  map[string]*list.Element
	recent *list.List // of *last, the one put last in front
}

type last struct {
	key   string
	trail trail
	at    time.Time
}

func newLasts(most int) *lasts {
	return &lasts{most: most, byKey: map[string]*list.Element{}, recent: list.New()}
}

// get is the zero trail for a key that is not remembered.
func (l *lasts) get(key string, now time.Time) trail {
	e, ok := l.byKey[key]
	if !ok {
		return trail{}
	}
	if v := e.Value.(*last); now.Sub(v.at) <= MaxAge {
		return v.trail
	}
	return trail{}
}

func (l *lasts) put(key string, t trail, now time.Time) {
	if e, ok := l.byKey[key]; ok {
		v := e.Value.(*last)
		v.trail, v.at = t, now
		l.recent.MoveToFront(e)
	} else {
		key = strings.Clone(key)
		l.byKey[key] = l.recent.PushFront(&last{key, t, now})
	}
	for e := l.recent.Back(); len(l.byKey) > l.most || now.Sub(e.Value.(*last).at) > MaxAge; e = l.recent.Back() {
		delete(l.byKey, e.Value.(*last).key)
		l.recent.Remove(e)
	}
}
