package postgres

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/shell"
)

// grantHint shows which right is missing, by the object that the server refuses to touch: that says
// more than the function that was called, which may need several. It is "" for another error.
func grantHint(err error) string {
	var refused *pgconn.PgError
	switch {
	case !errors.As(err, &refused) || refused.Code != "42501":
		return ""
	case refused.Hint != "":
		return refused.Hint
	}
	words := strings.Fields(refused.Message)
	name := ""
	if len(words) > 0 {
		name = strings.Trim(words[len(words)-1], `"'`) // last, in whatever language
	}
	switch of, own, _ := cutLast(name, "."); {
	case strings.HasPrefix(of, "__inbox"):
		if consumes[own] {
			return granted("penstock inbox grant CONSUMER ROLE --consume")
		}
		return granted("penstock inbox grant CONSUMER ROLE --operate")
	case strings.HasPrefix(of, "_") && rightTo[own] != "":
		return granted("penstock queue grant " + shell.Word(of[1:]) + " ROLE --" + rightTo[own])
	}
	switch {
	case strings.HasPrefix(name, "dequeue_"):
		return granted("penstock queue grant " + shell.Word(name[len("dequeue_"):]) + " ROLE --work")
	case name == "_queue" || name == "_dead_job":
		return granted("penstock queue grant QUEUE ROLE --operate")
	case name == "inboxes" || strings.HasPrefix(name, "_inbox"):
		return granted("penstock inbox grant CONSUMER ROLE --operate")
	case name == "publish" || name == "publish_bytes":
		return granted("penstock outbox grant OUTBOX ROLE --publish")
	case owners[name]:
		return onlyOwner
	case relays[name]:
		return granted("penstock outbox grant ROLE --relay")
	case strings.HasPrefix(name, "_adopt"):
		return granted(grantAdopt)
	case strings.HasPrefix(name, "_") && !strings.Contains(name, "."):
		return onlyOwner
	}
	return granted(pgerror.RightsOfVerbs)
}

// grantHint is the function of that name, and its statement is for this store's schema and role.
func (s *Store) grantHint(err error) string {
	role := s.pool.Config().ConnConfig.User
	return strings.Replace(grantHint(err), grantAdopt, "select "+s.table("grant_adopt")+"("+pg.Literal(role)+")", 1)
}

const grantAdopt = "select penstock.grant_adopt('ROLE')"

const onlyOwner = "only the owner of the schema may do this: connect as that role, for example with --database-url"

// lacks names the right to ask for after a refusal of the whole schema. That refusal does not show which right the role needs, and the caller knows it.
func lacks(err error, right string) error {
	if h, ok := errors.AsType[*penstock.HintError](err); ok && h.Hint == granted(pgerror.RightsOfVerbs) {
		return penstock.WithHint(h.Err, "%s", right)
	}
	return err
}

func granted(by string) string { return "the owner of the schema can grant it: " + by }

// rightTo names the right to each of a queue's own functions and sequences.
var rightTo = map[string]string{
	"enqueue": "enqueue", "enqueue_many": "enqueue", "barrier": "enqueue", "flags": "enqueue", "ring": "enqueue", "seq": "enqueue", "find": "enqueue",
	"take": "work", "claim": "work", "ack": "work", "ready": "work", "extend": "work", "report": "work", "release": "work", "fail": "work", "maintain": "work", "maintained": "work", "hold_group": "work",
	"pause": "operate", "cancel": "operate", "retry_dead": "operate", "discard_dead": "operate", "count": "operate", "count_groups": "operate", "done_jobs": "operate", "set_group": "operate", "group_limits": "operate",
}

// relays are the objects to which grant_relay gives rights.
var relays = map[string]bool{
	"_outbox": true, "_subscription": true, "_cursor": true, "_dead_letter": true, "_replay": true, "_retry": true, "_parked": true, "_parked_key": true, "_migration": true,
	"_cursor_n": true, "_parked_p": true, "_parked_key_n": true, "_cursor_slot": true, "_parked_slot": true, "_parked_key_slot": true,
	"_rotate": true, "_reclaim": true, "_behind": true, "_holders": true, "_reclaim_cursor": true, "_reclaim_parked_keys": true, "_reclaim_parked": true, "_report_sink": true,
}

// consumes are the functions of an inbox that a consumer calls; its operators call the others.
var consumes = map[string]bool{"first": true, "first_of": true, "in_order": true, "due": true, "maintain": true}

// owners are the functions that no role is granted.
var owners = map[string]bool{
	"create_outbox": true, "drop_outbox": true, "set_retention": true, "drop_subscription": true, "grant_producer": true, "grant_relay": true,
	"create_queue": true, "drop_queue": true, "set_queue": true, "schedule_bytes": true, "schedule": true, "unschedule": true, "pause_schedule": true, "resume_schedule": true, "run_schedule": true, "schedules": true,
	"grant_enqueuer": true, "grant_worker": true, "grant_operator": true,
	"create_inbox": true, "set_inbox": true, "drop_inbox": true, "grant_consumer": true, "grant_inbox_operator": true, "grant_adopt": true,
}

// cutLast cuts around the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
