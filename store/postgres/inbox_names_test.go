package postgres_test

import (
	"slices"
	"testing"

	"github.com/penstock/penstock/store/postgres"
)

// A consumer's name is in the text of functions that all inboxes share: whatever it is, each is found by it.
func TestInboxNames(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	names := []string{"$fn$", "$body$", "two\nlines", `\'; drop table x --`, "%s {first} {each: x}", `a,;"\%{}é𝒳`, "plain"}
	for _, name := range names {
		f.Must(f.store.CreateInbox(f.Ctx, name, 0))
	}
	for _, name := range names {
		fresh, err := f.store.Inbox(name).FirstOf(f.Ctx, asTx(f.Conn), "id")
		f.Must(err)
		if !slices.Equal(fresh, []string{"id"}) {
			t.Errorf("%q: new are %q", name, fresh)
		}
	}
	for _, name := range names {
		f.Must(f.store.DropInbox(f.Ctx, name))
	}
}
