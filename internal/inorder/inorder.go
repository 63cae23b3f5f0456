// Package inorder decides which messages of a key are late for an inbox.
package inorder

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/messageid"
)

// Parts are the last messages of the parts in which a key is handed over: a gap ends one and begins the next. The last part's
// message is the key's head. The order of parts is known only if the messages between them come.
type Parts []string

// most is how many parts of a key are kept.
const most = 8

// Read returns the parts of a key from its head, or "" if that is unknown, and the text that Behind made of
// the others.
func Read(head, behind string) (p Parts, err error) {
	if behind != "" {
		if err := json.Unmarshal([]byte(behind), &p); err != nil {
			return nil, fmt.Errorf("the parts behind %q of its key: %w", head, err)
		}
	}
	if head != "" {
		p = append(p, head)
	}
	return p, nil
}

// Head is the last message that was handed over and not late.
func (p Parts) Head() string {
	if len(p) == 0 {
		return ""
	}
	return p[len(p)-1]
}

// Behind is everything but the head as text, or "" if there is nothing.
func (p Parts) Behind() string {
	if len(p) < 2 {
		return ""
	}
	text, _ := json.Marshal(p[:len(p)-1])
	return string(text)
}

// HandOver returns whether a message that follows previous, or "" for none, is late, and the parts after it. instead is nil unless the
// message was reported missing. Then it is the message handed over in its place, or "" if nothing was, and the part that the message follows
// precedes the part of instead.
func (p Parts) HandOver(m *penstock.Released, previous string, instead *string) Parts {
	at, head := slices.Index(p, previous), p.Head()
	p = slices.Clone(p)
	last := len(p) - 1
	switch {
	case instead != nil:
		m.Late = true
		switch {
		case at < 0:
		case *instead == "":
			p[at] = m.ID
		case last == 0:
			p[0] = *instead
		default:
			p = slices.Delete(p, at, at+1)
		}
	case last < 0:
		return Parts{m.ID}
	case m.Gap && messageid.Before(m.ID, head):
		m.Late = true
	case m.Gap && !messageid.Before(head, m.ID):
		return append(p[max(0, len(p)-most+1):], m.ID)
	case m.Gap || previous == "" || at == last:
		p[last] = m.ID
	default:
		m.Late = true
		if at >= 0 {
			p[at] = m.ID
		}
	}
	return p
}
