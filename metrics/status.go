package metrics

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/pgerror"
)

// Parts of the status that are read if the store has them.
type (
	// StatusReader is a store with outboxes.
	StatusReader interface {
		Status(ctx context.Context) ([]admin.OutboxStatus, error)
	}
	// StatusOfTable is the status of a subscription over an adopted table.
	StatusOfTable func(ctx context.Context) (admin.SubscriptionStatus, error)

	unreadQueues interface {
		UnreadQueues(ctx context.Context) ([]string, error)
	}
	queueReader interface {
		QueueStatus(ctx context.Context, names ...string) ([]admin.QueueStatus, error)
		QueueGroups(ctx context.Context, queue, after string, most int) ([]admin.GroupStatus, error)
	}
	// scheduler is a store whose queues have schedules.
	scheduler interface {
		Schedules(ctx context.Context, queue string) ([]penstock.Schedule, error)
	}
	inboxReader interface {
		Inboxes(ctx context.Context) ([]admin.InboxStatus, error)
	}
	// retrier is a store that runs transactions again if its database asks for that.
	retrier interface {
		Retries() map[string]int64
	}
	pinReader interface {
		VacuumPins(ctx context.Context) ([]admin.VacuumPin, error)
	}
)

// described are all that are read when a scrape asks.
var described []*prometheus.Desc

// desc is one of them.
func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("penstock_"+name, help, labels, nil)
	described = append(described, d)
	return d
}

// value is a metric and how to read it.
type value[T any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*T) float64
}

func gaugeOf[T any](d *prometheus.Desc, of func(*T) float64) value[T] {
	return value[T]{d, prometheus.GaugeValue, of}
}

func send[T any](to chan<- prometheus.Metric, values []value[T], thing *T, labels ...string) {
	for _, v := range values {
		to <- constant(v.desc, v.kind, v.of(thing), labels...)
	}
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

var (
	longestRunning = desc("worker_longest_running_seconds", "For how long the handler runs that has run longest of those that run now in this process; 0 without one. The lease of one that hangs is extended all the same.", "queue")

	databaseUp = desc("database_up", "Whether the last read of the status succeeded.")
	readable   = desc("status_readable", "Whether the role may read all of this part of the status: outboxes, queues, inboxes, vacuum. Figures that its role may not read are left out.", "part")
	readTook   = desc("status_read_seconds", "How long the last read of the status took.")
	readAge    = desc("status_age_seconds", "How long ago the status was read: scrapes share a read for a while.")
	retries    = desc("transaction_retries_total", "Transactions that this process ran again because the database asked for it, by reason: serialization, deadlock, expired; unknown: looked up whether it had happened, after a lost answer. Not with PostgreSQL's own profile and SQLite.", "reason")

	ofOutbox = []value[admin.OutboxStatus]{
		gaugeOf(desc("outbox_bytes", "Size of the outbox on disk, with indexes.", "outbox"), func(o *admin.OutboxStatus) float64 { return float64(o.Bytes) }),
		gaugeOf(desc("outbox_segments", "Segments of the outbox's ring; 0 where there is none.", "outbox"), func(o *admin.OutboxStatus) float64 { return float64(len(o.Segments)) }),
		gaugeOf(desc("outbox_unread_age_seconds", "The age of the oldest message of an outbox that has no subscription, because no relay has ever run for it; 0 without one.", "outbox"), func(o *admin.OutboxStatus) float64 { return o.UnreadAge.Seconds() }),
	}
	segmentBytes = desc("segment_bytes", "Size on disk of a segment of an outbox, queue or inbox, with indexes.", "of", "name", "slot")

	ofSubscription = []value[admin.SubscriptionStatus]{
		gaugeOf(desc("subscription_oldest_unsettled_age_seconds", "The age of the oldest message in the backlog; 0 without one.", "outbox", "subscription"), func(s *admin.SubscriptionStatus) float64 { return s.OldestAge.Seconds() }),
		gaugeOf(desc("subscription_backlog_messages", "Committed messages that are not settled, parked ones aside.", "outbox", "subscription"), func(s *admin.SubscriptionStatus) float64 { return float64(s.Backlog) }),
		{desc("subscription_settled_messages_total", "Messages settled since the subscription was created.", "outbox", "subscription"), prometheus.CounterValue, func(s *admin.SubscriptionStatus) float64 { return float64(s.Settled) }},
		gaugeOf(desc("subscription_oldest_parked_age_seconds", "The age of the oldest parked message, for how long it has been refused if it is of an adopted table; 0 without one. A key that is refused holds back all that follows in it.", "outbox", "subscription"), func(s *admin.SubscriptionStatus) float64 { return s.ParkedAge.Seconds() }),
		gaugeOf(desc("subscription_parked_messages", "Messages that wait for another attempt, or behind one that does.", "outbox", "subscription"), func(s *admin.SubscriptionStatus) float64 { return float64(s.Parked) }),
		gaugeOf(desc("subscription_parked_keys", "Keys of parked messages.", "outbox", "subscription"), func(s *admin.SubscriptionStatus) float64 { return float64(s.ParkedKeys) }),
		gaugeOf(desc("subscription_held_keys", "Keys that wait until someone decides about a dead letter.", "outbox", "subscription"), func(s *admin.SubscriptionStatus) float64 { return float64(s.HeldKeys) }),
		gaugeOf(desc("subscription_dead_letters", "Dead letters that are kept.", "outbox", "subscription"), func(s *admin.SubscriptionStatus) float64 { return float64(s.DeadLetters) }),
		gaugeOf(desc("subscription_lease_held", "Whether a relay, wherever it runs, holds the lease.", "outbox", "subscription"), func(s *admin.SubscriptionStatus) float64 { return one(s.Holder != "") }),
		{desc("subscription_lease_takeovers_total", "How often the lease changed hands.", "outbox", "subscription"), prometheus.CounterValue, func(s *admin.SubscriptionStatus) float64 { return float64(s.Epoch) }},
		gaugeOf(desc("subscription_replaying", "Whether a replay is not delivered whole.", "outbox", "subscription"), func(s *admin.SubscriptionStatus) float64 { return one(s.Replaying) }),
	}
	sinkDown = desc("subscription_sink_down_seconds", "For how long the sink has taken nothing; 0 while it takes messages or no relay holds the lease.", "outbox", "subscription")

	queueJobs = desc("queue_jobs", "Jobs by state: ready, running, delayed, waiting for another of their key.", "queue", "state")
	ofQueue   = []value[admin.QueueStatus]{
		gaugeOf(desc("queue_oldest_ready_age_seconds", "The age of the oldest ready job; 0 without one.", "queue"), func(q *admin.QueueStatus) float64 { return q.OldestAge.Seconds() }),
		gaugeOf(desc("queue_dead_letters", "Dead letters that are kept.", "queue"), func(q *admin.QueueStatus) float64 { return float64(q.DeadLetters) }),
		{desc("queue_expired_total", "Jobs that ended because their deadline had passed, since the queue was created.", "queue"), prometheus.CounterValue, func(q *admin.QueueStatus) float64 { return float64(q.Expired) }},
		gaugeOf(desc("queue_paused", "Whether the queue is paused.", "queue"), func(q *admin.QueueStatus) float64 { return one(q.Paused != nil && *q.Paused) }),
		gaugeOf(desc("queue_done_bytes", "Size of kept jobs that are done on disk.", "queue"), func(q *admin.QueueStatus) float64 { return float64(q.DoneBytes) }),
		gaugeOf(desc("queue_bytes", "Size of the queue's own tables on disk, with indexes.", "queue"), func(q *admin.QueueStatus) float64 { return float64(q.Bytes) }),
		gaugeOf(desc("queue_segments", "Segments of the queue's ring; 0 where there is none.", "queue"), func(q *admin.QueueStatus) float64 { return float64(len(q.Segments)) }),
		gaugeOf(desc("queue_troubles", "Reasons why the queue's space is not given back; penstock status shows them.", "queue"), func(q *admin.QueueStatus) float64 { return float64(len(q.Trouble)) }),
	}

	queueOverdue = desc("queue_schedule_overdue_seconds", "For how long the next time of a schedule has passed without a worker that enqueues its job, of the one that is longest overdue. 0 if none is, paused ones aside.", "queue")

	groupJobs = desc("queue_group_jobs", "The same of a group; ready and waiting jobs may be counted up to a thousand.", "queue", "group", "state")
	ofGroup   = []value[admin.GroupStatus]{
		gaugeOf(desc("queue_group_oldest_ready_age_seconds", "The age of the group's oldest ready job; 0 without one.", "queue", "group"), func(g *admin.GroupStatus) float64 { return g.OldestAge.Seconds() }),
		gaugeOf(desc("queue_group_dead_letters", "Dead letters of the group.", "queue", "group"), func(g *admin.GroupStatus) float64 { return float64(g.DeadLetters) }),
	}
	// Of groups that have such a limit.
	groupMaxRunning = desc("queue_group_max_running", "How many jobs of a limited group may run at a time; queue_group_jobs has how many do.", "queue", "group")
	groupTokens     = desc("queue_group_tokens", "How many jobs of a group with a rate may start now.", "queue", "group")
	groupHeld       = desc("queue_group_held", "Whether a group with limits, or with a hold, is held.", "queue", "group")
	groupsCapped    = desc("queue_groups_capped", "Whether the queue has more groups than these metrics show.", "queue")

	ofInbox = []value[admin.InboxStatus]{
		gaugeOf(desc("inbox_bytes", "Size of the inbox on disk, with indexes; 0 where inboxes share their tables.", "consumer"), func(b *admin.InboxStatus) float64 { return float64(b.Bytes) }),
		gaugeOf(desc("inbox_segments", "Segments of the inbox's ring; 0 where there is none.", "consumer"), func(b *admin.InboxStatus) float64 { return float64(len(b.Segments)) }),
		gaugeOf(desc("inbox_held_messages", "Messages that are held back until those before them have come.", "consumer"), func(b *admin.InboxStatus) float64 { return float64(b.Held) }),
		gaugeOf(desc("inbox_held_bytes", "The payloads of held messages.", "consumer"), func(b *admin.InboxStatus) float64 { return float64(b.HeldBytes) }),
		gaugeOf(desc("inbox_gaps", "Gaps that were passed over, and are kept to be looked at.", "consumer"), func(b *admin.InboxStatus) float64 { return float64(b.Gaps) }),
	}
	inboxLate = desc("inbox_overdue_seconds", "For how long a held message has been due without a consumer that asks for it. 0 if none is late.", "consumer")

	ofPins = []value[admin.VacuumPin]{
		gaugeOf(desc("vacuum_pin_age_seconds", "For how long the oldest of a kind keeps vacuum from removing dead rows: session, prepared_transaction, replication_slot (0: its age is not known), standby (the same).", "kind"), func(p *admin.VacuumPin) float64 { return p.Age.Seconds() }),
		gaugeOf(desc("vacuum_pin_transactions", "Transactions begun since the oldest snapshot of a kind.", "kind"), func(p *admin.VacuumPin) float64 { return float64(p.Transactions) }),
	}
)

// reading is the result of one read of the status. Figures that the role may not read are empty.
type reading struct {
	at       time.Time
	took     time.Duration
	err      error
	refused  map[string]error     // by part of the status: why the role may not read it, or nil
	outboxes []admin.OutboxStatus // with adopted tables, which have no size
	tables   int                  // how many of outboxes are adopted tables
	queues   []admin.QueueStatus
	next     map[string]time.Time // of the schedules of a queue that are not paused, the earliest; zero without one
	inboxes  []admin.InboxStatus
	pins     []admin.VacuumPin
	stalled  []Problem
}

// status is the last reading, or a new one if that is too old. Only one read runs at a time.
func (m *Metrics) status() *reading {
	m.reading.Lock()
	defer m.reading.Unlock()
	if m.last != nil && time.Since(m.last.at) < m.o.StatusEvery {
		return m.last
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.o.StatusTimeout)
	defer cancel()
	began := time.Now()
	r := &reading{}
	r.err = m.read(ctx, r)
	r.at = time.Now()
	r.took = r.at.Sub(began)
	switch {
	case r.err != nil && (m.last == nil || m.last.err == nil):
		m.o.Logger.Warn("metrics: cannot read the status of the database; its figures are left out until it can be read", "err", r.err)
	case r.err == nil && m.last != nil && m.last.err != nil:
		m.o.Logger.Info("metrics: the status of the database can be read again")
	}
	for part, err := range r.refused {
		if err != nil && r.err == nil && (m.last == nil || m.last.refused[part] == nil) {
			m.o.Logger.Warn("metrics: the role may not read a part of the status, which is left out", "part", part, "err", err)
		}
	}
	if r.err == nil {
		r.stalled = m.findStalled(r)
	}
	m.last = r
	return r
}

// read reads the status that the role may see. It reads several parts at a time, because many outboxes or queues
// take a while.
func (m *Metrics) read(ctx context.Context, r *reading) error {
	var all sync.WaitGroup
	var noting sync.Mutex
	var failed error // the first
	r.refused = map[string]error{}
	begin := func(part string, f func() error) {
		all.Go(func() {
			err := f()
			noting.Lock()
			defer noting.Unlock()
			if err != nil && !pgerror.IsForbidden(err) {
				failed = cmp.Or(failed, err)
				return
			}
			r.refused[part] = err
		})
	}
	if store, ok := m.o.Store.(queueReader); ok {
		begin("queues", func() (err error) { r.queues, err = m.readQueues(ctx, store, r); return err })
	}
	var unread []string
	if store, ok := m.o.Store.(unreadQueues); ok && m.o.Queue == "" {
		begin("", func() (err error) { unread, err = store.UnreadQueues(ctx); return err })
	}
	if store, ok := m.o.Store.(pinReader); ok {
		begin("vacuum", func() (err error) { r.pins, err = store.VacuumPins(ctx); return err })
	}
	if store, ok := m.o.Store.(inboxReader); ok && m.o.Queue == "" {
		begin("inboxes", func() (err error) { r.inboxes, err = store.Inboxes(ctx); return err })
	}
	if store, ok := m.o.Store.(StatusReader); ok && m.o.Queue == "" {
		begin("outboxes", func() (err error) { r.outboxes, err = store.Status(ctx); return err })
	}
	all.Wait()
	delete(r.refused, "") // "queues" has the same
	if err := pgerror.UnreadQueues(unread); err != nil {
		r.refused["queues"] = cmp.Or(r.refused["queues"], err)
	}
	if failed != nil {
		return failed
	}
	return m.readTables(ctx, r)
}

func (m *Metrics) readTables(ctx context.Context, r *reading) error {
	m.mu.Lock()
	tables := maps.Clone(m.tables)
	m.mu.Unlock()
	for of, read := range tables {
		s, err := read(ctx)
		if ctx.Err() != nil || pgerror.IsDown(err) {
			return err
		}
		if err == nil { // otherwise an error of such a table would hide the others
			s.Subscription = of.name
			r.outboxes = append(r.outboxes, admin.OutboxStatus{Outbox: of.outbox, Subscriptions: []admin.SubscriptionStatus{s}})
			r.tables++
		}
	}
	return nil
}

func (m *Metrics) readQueues(ctx context.Context, store queueReader, r *reading) (queues []admin.QueueStatus, err error) {
	var only []string
	if m.o.Queue != "" {
		only = []string{m.o.Queue}
	}
	all, err := store.QueueStatus(ctx, only...)
	if err != nil {
		return nil, err
	}
	for _, q := range all {
		if m.o.Groups > 0 {
			q.Groups, err = store.QueueGroups(ctx, q.Queue, "", m.o.Groups+1)
			if err != nil && !errors.Is(err, penstock.ErrNoQueue) { // dropped meanwhile
				return nil, err
			}
		}
		queues = append(queues, q)
	}
	return queues, m.readSchedules(ctx, queues, r)
}

// readSchedules reads when the next job of a schedule of each queue is due. A role that may not read them has none.
func (m *Metrics) readSchedules(ctx context.Context, queues []admin.QueueStatus, r *reading) error {
	store, ok := m.o.Store.(scheduler)
	if !ok {
		return nil
	}
	r.next = map[string]time.Time{}
	for i := range queues {
		all, err := store.Schedules(ctx, queues[i].Queue)
		switch {
		case pgerror.IsForbidden(err), errors.Is(err, penstock.ErrNoQueue): // dropped meanwhile
			continue
		case err != nil:
			return err
		}
		var next time.Time
		for _, s := range all {
			if !s.Paused && (next.IsZero() || s.Next.Before(next)) {
				next = s.Next
			}
		}
		r.next[queues[i].Queue] = next
	}
	return nil
}

// collect sends the figures that were read. If the read failed, it sends only the figures about the read
// itself.
func (r *reading) collect(to chan<- prometheus.Metric, groups int) {
	for d, v := range map[*prometheus.Desc]float64{databaseUp: one(r.err == nil), readTook: r.took.Seconds(), readAge: time.Since(r.at).Seconds()} {
		to <- constant(d, prometheus.GaugeValue, v)
	}
	if r.err != nil {
		return
	}
	for part, err := range r.refused {
		to <- constant(readable, prometheus.GaugeValue, one(err == nil), part)
	}
	for i := range r.outboxes {
		o := &r.outboxes[i]
		if i < len(r.outboxes)-r.tables {
			send(to, ofOutbox, o, o.Outbox)
			sendSegments(to, "outbox", o.Outbox, o.Segments)
		}
		for j := range o.Subscriptions {
			s := &o.Subscriptions[j]
			send(to, ofSubscription, s, o.Outbox, s.Subscription)
			to <- constant(sinkDown, prometheus.GaugeValue, since(s.SinkDown, r.at), o.Outbox, s.Subscription)
		}
	}
	for i := range r.queues {
		sendQueue(to, &r.queues[i], groups)
		if next, read := r.next[r.queues[i].Queue]; read {
			to <- constant(queueOverdue, prometheus.GaugeValue, since(next, r.at), r.queues[i].Queue)
		}
	}
	for i := range r.inboxes {
		b := &r.inboxes[i]
		send(to, ofInbox, b, b.Consumer)
		sendSegments(to, "inbox", b.Consumer, b.Segments)
		to <- constant(inboxLate, prometheus.GaugeValue, since(b.NextGap, r.at), b.Consumer)
	}
	for i := range r.pins {
		send(to, ofPins, &r.pins[i], string(r.pins[i].Kind))
	}
}

func sendQueue(to chan<- prometheus.Metric, q *admin.QueueStatus, groups int) {
	send(to, ofQueue, q, q.Queue)
	sendJobs(to, queueJobs, q.Ready, q.Running, q.Delayed, q.Waiting, q.Queue)
	sendSegments(to, "queue", q.Queue, q.Segments)
	if groups == 0 {
		return
	}
	to <- constant(groupsCapped, prometheus.GaugeValue, one(len(q.Groups) > groups), q.Queue)
	for i := range q.Groups[:min(len(q.Groups), groups)] { // one more than the limit was read
		g := &q.Groups[i]
		send(to, ofGroup, g, q.Queue, g.Group)
		sendJobs(to, groupJobs, g.Ready, g.Running, g.Delayed, g.Waiting, q.Queue, g.Group)
		l := g.Limits
		if l == nil {
			continue
		}
		to <- constant(groupHeld, prometheus.GaugeValue, one(!l.Until.IsZero()), q.Queue, g.Group)
		if l.MaxRunning > 0 {
			to <- constant(groupMaxRunning, prometheus.GaugeValue, float64(l.MaxRunning), q.Queue, g.Group)
		}
		if l.Rate.Jobs > 0 {
			to <- constant(groupTokens, prometheus.GaugeValue, float64(l.Tokens), q.Queue, g.Group)
		}
	}
}

func sendJobs(to chan<- prometheus.Metric, d *prometheus.Desc, ready, running, delayed, waiting int64, labels ...string) {
	for state, n := range map[string]int64{"ready": ready, "running": running, "delayed": delayed, "waiting": waiting} {
		to <- constant(d, prometheus.GaugeValue, float64(n), append(labels, state)...)
	}
}

func sendSegments(to chan<- prometheus.Metric, of, name string, segments []admin.SegmentStatus) {
	for _, s := range segments {
		to <- constant(segmentBytes, prometheus.GaugeValue, float64(s.Bytes), of, name, strconv.Itoa(s.Slot))
	}
}

// since is 0 for the zero time.
func since(at, now time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return waited(now, at)
}
