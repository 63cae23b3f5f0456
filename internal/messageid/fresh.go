package messageid

import (
	"fmt"
	"slices"

	"github.com/penstock/penstock"
)

// Validate checks all messages, before the first is written.
func Validate(msgs []penstock.Message) error {
	for i := range msgs {
		if err := msgs[i].Validate(); err != nil {
			return At(err, i, len(msgs))
		}
	}
	return nil
}

// At adds to an error which of several messages it is about.
func At(err error, i, n int) error {
	if n == 1 {
		return err
	}
	return fmt.Errorf("message %d of %d: %w", i+1, n, err)
}

// Given are the ids that messages have, each once.
func Given(msgs []penstock.Message) []string {
	var ids []string
	known := map[string]bool{}
	for i := range msgs {
		if id := msgs[i].ID; id != "" && !known[id] {
			known[id] = true
			ids = append(ids, id)
		}
	}
	return ids
}

// Fresh are the messages whose ids are among fresh, the first of each, and those without an id.
func Fresh(msgs []penstock.Message, fresh []string) []penstock.Message {
	left := make(map[string]bool, len(fresh))
	for _, id := range fresh {
		left[id] = true
	}
	return slices.DeleteFunc(slices.Clone(msgs), func(m penstock.Message) bool {
		is := m.ID == "" || left[m.ID]
		delete(left, m.ID)
		return !is
	})
}
