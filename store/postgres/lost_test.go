package postgres_test

import (
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pgerror"
)

// A transaction that loses against another one has written nothing. The store's own transactions try again,
// and if one keeps losing, its rows are not to blame.
func TestOwnTransactionsTryAgain(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	f.Must(f.store.CreateInbox(f.Ctx, "imports", 0))
	// No rollback takes back the count of a sequence.
	f.Exec(`create sequence tries;
		create table loses (times int, code text);
		create function lose() returns trigger language plpgsql as $f$
		begin
			if nextval('public.tries') <= (select times from public.loses) then
				raise exception 'lost' using errcode = (select code from public.loses);
			end if;
			return new;
		end $f$;
		create trigger lose before insert on penstock.orders for each row execute function lose();
		create trigger lose before insert on penstock.jobs for each row execute function lose()`)
	for name, write := range map[string]func(id string) error{
		"Publish": func(string) error { return f.store.Publish(f.Ctx, "orders", penstock.Message{}) },
		"PublishOnce": func(id string) error {
			return f.store.PublishOnce(f.Ctx, "imports", "orders", penstock.Message{ID: id})
		},
		"Enqueue": func(string) error {
			_, err := f.queue.Enqueue(f.Ctx, penstock.NewJob{})
			return err
		},
	} {
		for _, code := range []string{"40001", "40P01"} {
			lose := func(times int) {
				f.Exec("truncate loses")
				f.Exec("insert into loses values ($1, $2)", times, code)
				f.Exec("alter sequence tries restart")
			}
			lose(1000)
			if err := write(code); pgerror.State(err) != code || f.store.RefusesContent(err) {
				t.Errorf("%s lost for good: %v", name, err)
			}
			lose(3)
			if err := write(code); err != nil {
				t.Errorf("%s lost three times: %v", name, err)
			}
		}
	}
}
