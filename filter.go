package penstock

import (
	"fmt"
	"strings"
)

// Filter chooses which messages of an outbox a subscription delivers; the others
// are settled unsent. The zero value chooses all.
type Filter struct {
	// Topics are patterns. One of them must match the whole topic. A topic is
	// words between dots. In a pattern * stands for any one word, and > as the
	// last word for one or more words. Empty matches any topic.
	Topics []string `yaml:"topics" json:"topics,omitempty"`
	// Headers must all be present. The value is compared exactly; * stands for any value.
	Headers map[string]string `yaml:"headers" json:"headers,omitempty"`
}

// Validate reports a pattern that could never match, as a *FieldError.
func (f *Filter) Validate() error {
	for _, p := range f.Topics {
		if err := ValidateText("filter.topics", p, MaxTopicBytes); err != nil {
			return err
		}
		words := strings.Split(p, ".")
		for i, w := range words {
			switch {
			case w == ">" && i < len(words)-1:
				return &FieldError{Field: "filter.topics", Problem: fmt.Sprintf("has the pattern %q with > before the end", p), Hint: "> stands for the rest of a topic; use * for one word"}
			case w != "*" && w != ">" && strings.ContainsAny(w, "*>"):
				return &FieldError{Field: "filter.topics", Problem: fmt.Sprintf("has the pattern %q with a wildcard inside a word", p), Hint: "* and > stand for whole words between dots"}
			}
		}
	}
	for name := range f.Headers {
		if name == "" {
			return &FieldError{Field: "filter.headers", Problem: "has an empty name", Hint: "name the header"}
		}
	}
	return nil
}

// Empty reports whether f chooses every message.
func (f *Filter) Empty() bool { return len(f.Topics) == 0 && len(f.Headers) == 0 }

// Match reports whether m is chosen. It does not allocate.
func (f *Filter) Match(m *Message) bool {
	for name, want := range f.Headers {
		if got, ok := m.Headers[name]; !ok || want != "*" && got != want {
			return false
		}
	}
	if len(f.Topics) == 0 {
		return true
	}
	for _, p := range f.Topics {
		if matchTopic(p, m.Topic) {
			return true
		}
	}
	return false
}

func matchTopic(pattern, topic string) bool {
	for {
		p, morePattern, isP := strings.Cut(pattern, ".")
		t, moreTopic, isT := strings.Cut(topic, ".")
		switch {
		case p == ">" && !isP:
			return true
		case p != "*" && p != t || isP != isT:
			return false
		case !isP:
			return true
		}
		pattern, topic = morePattern, moreTopic
	}
}
