package tables

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

// Bits of a queue's policies: groups have some, or the queue as a whole has a rate. Claims of a queue with neither ask nothing more.
const (
	OfGroups = 1
	OfQueue  = 2
)

// mostSlack bounds how far a burst reaches, in nanoseconds, so that sums of it and the time do not overflow.
const mostSlack = 3_000_000_000_000_000_000

// policyRow is a row of the policies: that of a group, of all groups without one, or of the queue as a whole.
type policyRow struct {
	whole  bool
	group  string
	policy penstock.GroupPolicy
	set    bool  // it is not only held
	held   int64 // until when, in microseconds
	reason string
	now    int64
}

// args are those of its columns. A start that is due pace later than the one before may come earlier by slack, less one pace.
func (p *policyRow) args(row *QueueRow) Args {
	var pace, slack int64
	if r := p.policy.Rate; r.Jobs > 0 {
		pace = int64(r.Per) / int64(r.Jobs)
		slack = pace * min(int64(max(r.Burst, 1)), mostSlack/pace)
	}
	text := ""
	if p.set {
		b, _ := json.Marshal(p.policy) // of numbers and a string: cannot fail
		text = string(b)
	}
	return row.Args(Args{"whole": p.whole, "group": p.group, "policy": text, "running": p.policy.MaxRunning, "weight": max(p.policy.Weight, 1), "pace": pace, "slack": slack, "per": int64(p.policy.Rate.Per), "held": p.held, "reason": p.reason})
}

// rowsOfPolicies reads policies.
func rowsOfPolicies(b *Batch, where string, args Args, each func(p policyRow)) {
	b.Rows(func(scan Scan) error {
		var p policyRow
		var text string
		if err := scan(&p.whole, &p.group, &text, &p.held, &p.reason, &p.now); err != nil {
			return err
		}
		p.set = text != ""
		_ = json.Unmarshal([]byte(text), &p.policy) // one that was written by hand limits nothing
		if p.policy.Group = p.group; p.held <= p.now {
			p.held, p.reason = 0, ""
		}
		each(p)
		return nil
	}, "select p.whole, p.group_key, p.policy, p.held_until, p.reason, {clock_micros} from {schema}.group_policies p where p.queue_id = {queue} and "+where, args)
}

// hold returns until when the row's group is held.
func (p *policyRow) hold() admin.Hold {
	if p.held == 0 {
		return admin.Hold{}
	}
	return admin.Hold{Until: time.UnixMicro(p.held).UTC(), Reason: p.reason}
}

// changePolicy has change work on the policy of a group or, as a whole, of the queue, whose row is locked. No claim is under way meanwhile, so that all
// those that begin afterwards know of it.
func (s *Queues) changePolicy(ctx context.Context, tx Tx, row *QueueRow, whole bool, group string, change func(p *policyRow)) error {
	p, these := policyRow{whole: whole, group: group}, row.Args(Args{"whole": whole, "group": group})
	b := &Batch{}
	holdTurns(b, row.Name)
	rowsOfPolicies(b, "p.whole = {whole} and p.group_key = {group}", these, func(read policyRow) { p = read })
	b.Row(new(bool), "select {clock_micros}", these, &p.now)
	if err := tx.Run(ctx, b); err != nil {
		return err
	}
	change(&p)
	b = new(Batch).Do("delete from {schema}.group_policies where queue_id = {queue} and whole = {whole} and group_key = {group}", these)
	if p.set || p.held > p.now {
		b.Do(`insert into {schema}.group_policies (queue_id, whole, group_key, policy, max_running, weight, pace, slack, per, held_until, reason)
			values ({queue}, {whole}, {group}, {policy}, {running}, {weight}, {pace}, {slack}, {per}, {held}, {reason})`, p.args(row))
	}
	forgetHolds(b, row)
	return tx.Run(ctx, b)
}

// forgetHolds deletes holds that have ended of groups without a policy, and notes which policies the queue has.
func forgetHolds(b *Batch, row *QueueRow) {
	these := row.Args(Args{"ofgroups": OfGroups, "ofqueue": OfQueue})
	b.Do("delete from {schema}.group_policies where queue_id = {queue} and policy = '' and held_until <= {clock_micros}", these)
	b.Do(`update {schema}.queues set policies = case when exists (select 1 from {schema}.group_policies p where p.queue_id = {queue} and not p.whole) then {ofgroups} else 0 end
		+ case when exists (select 1 from {schema}.group_policies p where p.queue_id = {queue} and p.whole) then {ofqueue} else 0 end where id = {queue}`, these)
}

// policy changes that of a group, in a transaction.
func (s *Queues) policy(ctx context.Context, name, group string, change func(p *policyRow)) error {
	return s.locked(ctx, name, func(tx Tx, row *QueueRow) error { return s.changePolicy(ctx, tx, row, false, group, change) })
}

// SetGroup implements driver.GroupStore.
func (s *Queues) SetGroup(ctx context.Context, queue string, p penstock.GroupPolicy) error {
	if err := p.Validate(); err != nil {
		return err
	}
	return s.policy(ctx, queue, p.Group, func(row *policyRow) {
		row.policy, row.set = p, p != penstock.GroupPolicy{Group: p.Group}
	})
}

// HoldGroup implements driver.GroupStore.
func (s *Queues) HoldGroup(ctx context.Context, queue, group string, d time.Duration, reason string) error {
	if err := penstock.ValidateHold(group, d, reason); err != nil {
		return err
	}
	return s.policy(ctx, queue, group, func(row *policyRow) {
		if until := row.now + min(d.Microseconds(), longestHold); d == 0 {
			row.held, row.reason = 0, ""
		} else if until > row.held {
			row.held, row.reason = until, reason
		}
	})
}

// longestHold, in microseconds, keeps the time until which a group is held in the range of all databases.
const longestHold = 100 * 366 * 24 * 3600 * 1_000_000

// GroupPolicies implements driver.GroupStore.
func (s *Queues) GroupPolicies(ctx context.Context, queue, after string, most int) ([]admin.GroupPolicy, error) {
	if err := admin.ValidateLimit(most); err != nil {
		return nil, err
	}
	row, err := s.look(ctx, s.on, queue, "")
	if err != nil {
		return nil, err
	}
	all := []admin.GroupPolicy{}
	b := &Batch{}
	rowsOfPolicies(b, "not p.whole and (p.policy <> '' or p.held_until > {clock_micros}) and ({all} or p.group_key > {after}) order by p.group_key limit {most}",
		row.Args(Args{"all": after == "", "after": after, "most": most}), func(p policyRow) {
			all = append(all, admin.GroupPolicy{GroupPolicy: p.policy, Hold: p.hold()})
		})
	return all, s.on.Run(ctx, b)
}

// queueTokens is how many jobs the rate of a queue as a whole lets start now.
func (s *Queues) queueTokens(ctx context.Context, row *QueueRow, r penstock.Rate) (*int, error) {
	var next, now int64
	b := &Batch{}
	b.Row(new(bool), "select coalesce((select max(s.next) from {schema}.group_starts s where s.queue_id = {queue} and s.whole), 0), {clock_micros}", row.Args(nil), &next, &now)
	err := s.on.Run(ctx, b)
	p := policyRow{policy: penstock.GroupPolicy{Rate: r}}
	n := p.startsNow(row, now, next)
	return &n, err
}

// limits adds to the status of groups which limits they have.
func (s *Queues) limits(ctx context.Context, row *QueueRow, groups []admin.GroupStatus) error {
	if len(groups) == 0 {
		return nil
	}
	names := []string{penstock.DefaultGroup}
	for i := range groups {
		names = append(names, groups[i].Group)
	}
	rows, due := map[string]policyRow{}, map[string]int64{}
	args := row.Args(Args{"groups": names})
	b := &Batch{}
	rowsOfPolicies(b, "not p.whole and {p.group_key in groups}", args, func(p policyRow) { rows[p.group] = p })
	if err := s.on.Run(ctx, b); err != nil || len(rows) == 0 {
		return err
	}
	b = new(Batch).Rows(func(scan Scan) error {
		var group string
		var next int64
		err := scan(&group, &next)
		due[group] = next
		return err
	}, "select s.group_key, s.next from {schema}.group_starts s where s.queue_id = {queue} and not s.whole and {s.group_key in groups}", args)
	if err := s.on.Run(ctx, b); err != nil {
		return err
	}
	for i := range groups {
		g := &groups[i]
		own, is := rows[g.Group]
		p := own
		if all, has := rows[penstock.DefaultGroup]; has && !own.set {
			p, is = all, true
		}
		if !is || !p.set && own.held == 0 {
			continue
		}
		l := &admin.GroupLimits{MaxRunning: p.policy.MaxRunning, Rate: p.policy.Rate, Weight: p.policy.Weight, Hold: own.hold()}
		if l.Rate.Jobs > 0 {
			l.Tokens = p.startsNow(row, p.now, due[g.Group])
		}
		g.Limits = l
	}
	return nil
}

// startsNow is how many jobs may start, as the statement "limits" has it: next is when the next one is due, in nanoseconds. If it were due more than per
// later, that is by another clock, or another rate: one job may start, and the rate counts from there.
func (p *policyRow) startsNow(row *QueueRow, micros, next int64) int {
	args := p.args(row)
	now, pace, slack, per := micros*1000, args["pace"].(int64), args["slack"].(int64), args["per"].(int64)
	if next > now+slack-pace+per+int64(time.Millisecond) {
		return 1
	}
	return int(max((now+slack-max(next, now))/pace, 0))
}

// Parts puts statements about limits into a text that they are a part of. running may be given.
func Parts(text string, statements map[string]string, with Args) string {
	for _, part := range []string{"room_in_turn", "room", "in_turn", "room_by", "limits", "start_at", "running", "running_groups"} {
		if name := "{" + part + "}"; strings.Contains(text, name) && with[part] == nil {
			of := statements[part]
			switch part {
			case "running":
				of = "(" + statements["running_in_group"] + ")"
			case "start_at":
				of = "(" + of + ")"
			}
			text = strings.ReplaceAll(text, name, strings.TrimSpace(of))
		}
	}
	return text
}

// WithLimits are the words of a queue with policies, of a dialect that renders them. running is how many jobs of the group g run.
func WithLimits(row *QueueRow, running SQL, rendered func(text string, with Args) string) Args {
	these := row.Args(Args{"queue": SQL(strconv.FormatInt(row.ID, 10)), "group": SQL("g.group_key"), "running": running})
	words := Args{}
	for word, text := range limitedGroups {
		words[word] = SQL(rendered(text, these))
	}
	return words
}

// limitedGroups are the words of QueueDB.LimitedGroups.
var limitedGroups = map[string]string{
	"weight":         "coalesce((select max(i.weight) from {limits}), 1)",
	"running_groups": " left join ({running_groups}) r on r.group_key = g.group_key",
	"may_start":      "{room} > 0",
}

// RoomOf reads the statement "group_room": whether claims of the group take turns, and for how many jobs there is room.
func (r *Round) RoomOf(b *Batch, row *QueueRow, group string) {
	r.InTurn, r.Started, r.RoomInGroup = false, false, math.MaxInt32
	b.Row(new(bool), "group_room", row.Args(Args{"group": group, "checked": r.Checked}), &r.InTurn, &r.Started, &r.RoomInGroup)
}

// giveStartsBack has rates not count jobs that a claim of the group has taken and that did not begin. The policies are those of the statement "limits". No claim is
// under way.
const giveStartsBack = `update {schema}.group_starts as s
   set next = next - {starts} * coalesce((select max(i.pace) from {schema}.group_policies i
                                           where i.queue_id = {queue} and i.whole = s.whole
                                             and (i.whole or i.group_key = {group}
                                                  or i.group_key = '*' and not exists (select 1 from {schema}.group_policies o where o.queue_id = {queue} and o.group_key = {group} and not o.whole and o.policy <> ''))), 0)
 where queue_id = {queue} and (whole or group_key = {group})`

// forgetPolicies forgets what does not limit any more: ends of holds, and starts that are past.
func (s *Queues) forgetPolicies(ctx context.Context, row *QueueRow) error {
	over := false
	if err := s.on.Send(ctx, func(b *Batch) {
		b.Do("delete from {schema}.group_starts where queue_id = {queue} and next < {clock_micros} * 1000", row.Args(nil))
		b.Row(&over, "select 1 from {schema}.group_policies where queue_id = {queue} and policy = '' and held_until <= {clock_micros} limit 1", row.Args(nil), new(int))
	}); err != nil || !over {
		return err
	}
	return s.on.Within(ctx, func(tx Tx) error {
		b := row.withoutClaims()
		forgetHolds(b, row)
		return tx.Finish(ctx, b)
	})
}
