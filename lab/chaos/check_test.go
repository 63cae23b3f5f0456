package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// story builds evidence, second by second.
type story struct {
	evidence
	start time.Time
}

func newStory() *story {
	s := &story{start: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)}
	s.evidence = evidence{journal: map[string]*entry{}, facts: map[string]message{}, arrivals: map[string][]arrival{},
		dead: map[string][]deadLetter{}, samples: map[string][]sample{}, cancelled: map[string]cancellation{}, end: s.at(1000)}
	return s
}

func (s *story) at(second float64) time.Time {
	return s.start.Add(time.Duration(second * float64(time.Second)))
}

// committed has number n of key written and committed.
func (s *story) committed(id, key string, n int64, topic string) message {
	m := message{ID: id, Key: key, N: n, Topic: topic}
	s.facts[id] = m
	s.journal[id] = &entry{message: m, Written: s.at(0), Ended: s.at(0), Outcome: committed}
	return m
}

func (s *story) delivered(route string, second float64, m message) {
	s.arrivals[route] = append(s.arrivals[route], arrival{ID: m.ID, Key: m.Key, Topic: m.Topic, Trace: m.ID, Payload: m, At: s.at(second)})
}

// enqueued has number n of key written and committed with a job, and its message delivered.
func (s *story) enqueued(id, key string, n int64) message {
	m := s.committed(id, key, n, topicSent)
	s.everywhere(1, m)
	return m
}

// ran has a worker run a job, which it answers with status.
func (s *story) ran(worker string, from, to float64, m message, status int) {
	s.runs = append(s.runs, &jobRun{message: m, Job: "tasks-" + m.ID, Worker: worker, Begun: s.at(from), Ended: s.at(to), Status: status})
}

// everywhere delivers to all subscriptions that want it.
func (s *story) everywhere(second float64, m message) {
	for _, r := range routes {
		if r.chooses(m.Topic) {
			s.delivered(r.name, second, m)
		}
	}
}

func (s *story) sampled(route string, second float64, x sample) {
	x.From, x.To = s.at(second), s.at(second)
	s.samples[route] = append(s.samples[route], x)
}

func (s *story) happened(name string, from, to float64, concerned ...string) {
	s.events = append(s.events, &event{Name: name, blast: subscriptions(concerned...), From: s.at(from), To: s.at(to)})
}

// walLost has a standby promoted at the second to that has heard nothing since from.
func (s *story) walLost(from, to float64) {
	s.happened(walLost, from, to+3, routeNames("")...)
	e := s.events[len(s.events)-1]
	e.Sudden, e.Struck = true, s.at(to)
}

// The checker finds each kind of violation, and nothing where there is none.
func TestCheck(t *testing.T) {
	const rabbit, nats, audit = "to-rabbitmq", "to-nats", "audit"
	for _, c := range []struct {
		name string
		tell func(*story)
		want []string // kind and subscription of the expected finding
	}{
		{"nothing wrong", func(s *story) {
			s.everywhere(1, s.committed("a", "k", 1, topicPaid))
			s.everywhere(2, s.committed("b", "k", 2, topicPlaced))
			s.everywhere(3, s.committed("c", "", 0, topicPlaced))
		}, nil},
		{"lost by one", func(s *story) {
			m := s.committed("a", "k", 1, topicPaid)
			s.delivered(rabbit, 1, m)
			s.delivered(audit, 1, m)
		}, []string{"lost to-nats"}},
		{"a commit without an answer took place", func(s *story) {
			s.everywhere(1, s.committed("a", "k", 1, topicPlaced))
			s.journal["a"].Outcome = unknown
		}, nil},
		{"a commit without an answer did not take place", func(s *story) {
			s.committed("a", "k", 1, topicPlaced)
			delete(s.facts, "a")
			s.journal["a"].Outcome = unknown
		}, nil},
		{"rolled back and delivered", func(s *story) {
			m := s.committed("a", "k", 1, topicPlaced)
			delete(s.facts, "a")
			s.journal["a"].Outcome = rolledBack
			s.delivered(nats, 1, m)
		}, []string{"phantom to-nats"}},
		{"the database lost an acknowledged commit", func(s *story) {
			s.committed("a", "k", 1, topicPlaced)
			delete(s.facts, "a")
		}, []string{"database_lost "}},
		{"the business counter has a gap", func(s *story) {
			s.everywhere(1, s.committed("a", "k", 2, topicPlaced))
		}, []string{"business_key_gap "}},
		{"overtaken", func(s *story) {
			a, b := s.committed("a", "k", 1, topicPlaced), s.committed("b", "k", 2, topicPlaced)
			s.delivered(rabbit, 1, b)
			s.delivered(rabbit, 2, a)
			s.delivered(nats, 1, a)
			s.delivered(nats, 2, b)
		}, []string{"out_of_order to-rabbitmq"}},
		{"keys do not wait for each other", func(s *story) {
			a, b := s.committed("a", "k", 1, topicPlaced), s.committed("b", "l", 1, topicPlaced)
			s.everywhere(1, b)
			s.everywhere(2, a)
		}, nil},
		{"a later delivery of the same is not out of order", func(s *story) {
			a, b := s.committed("a", "k", 1, topicPlaced), s.committed("b", "k", 2, topicPlaced)
			s.everywhere(1, a)
			s.everywhere(2, b)
			s.delivered(rabbit, 3, a)
			s.happened("relay_killed", 2, 3, rabbit)
		}, nil},
		{"twice without a reason", func(s *story) {
			a := s.committed("a", "k", 1, topicPlaced)
			s.journal["a"].Written = s.at(9.5)
			s.everywhere(10, a)
			s.delivered(rabbit, 20, a)
			s.happened("relay_killed", 13, 14, nats)    // another subscription's
			s.happened("relay_killed", 5, 6, rabbit)    // before
			s.happened("network_cut", 30, 31, rabbit)   // after
			s.happened("relay_stopped", 12, 13, rabbit) // in between, but it was settled
			s.sampled(rabbit, 10.1, sample{Settled: 3, Backlog: 1})
			s.sampled(rabbit, 10.5, sample{Settled: 4, Backlog: 7})
		}, []string{"unexplained_duplicates to-rabbitmq"}},
		{"twice, and a relay was killed that stood by", func(s *story) {
			a := s.committed("a", "k", 1, topicPlaced)
			s.everywhere(10, a)
			s.delivered(rabbit, 12, a)
			s.happened("relay_killed", 10, 14, rabbit)
			s.events[0].Holder = "relay-a"
			s.sampled(rabbit, 9, sample{Holder: "relay-b"})
			s.sampled(rabbit, 15, sample{Holder: "relay-b"})
		}, []string{"unexplained_duplicates to-rabbitmq"}},
		{"twice, and the relay was killed that held it", func(s *story) {
			a := s.committed("a", "k", 1, topicPlaced)
			s.everywhere(10, a)
			s.delivered(rabbit, 12, a)
			s.happened("relay_killed", 10, 14, rabbit)
			s.events[0].Holder, s.events[0].Sudden, s.events[0].Struck = "relay-a", true, s.at(10)
			s.sampled(rabbit, 9, sample{Holder: "relay-a"})
			s.sampled(rabbit, 15, sample{Holder: "relay-b"})
		}, nil},
		{"twice, long after the relay was killed", func(s *story) {
			a := s.committed("a", "k", 1, topicPlaced)
			s.journal["a"].Written = s.at(9.5)
			s.everywhere(10, a)
			s.delivered(rabbit, 12, a)
			s.happened("relay_killed", 8, 14, rabbit)
			s.events[0].Sudden, s.events[0].Struck = true, s.at(8)
		}, []string{"unexplained_duplicates to-rabbitmq"}},
		{"the first copy lay in a broker that was down", func(s *story) {
			a := s.committed("a", "k", 1, topicPlaced)
			s.happened("rabbitmq_killed", 2, 18, rabbit)
			s.happened("relay_killed", 1, 3, rabbit)
			s.everywhere(20, a)
			s.delivered(rabbit, 20.5, a)
		}, nil},
		{"handed out again by the broker, then sent again by the relay", func(s *story) {
			a := s.committed("a", "k", 1, topicPlaced)
			s.everywhere(10, a)
			s.delivered(rabbit, 20, a)
			s.delivered(rabbit, 22, a)
			s.happened("rabbitmq_killed", 8, 18, rabbit)
			s.events[0].Sudden, s.events[0].Struck = true, s.at(10)
		}, nil},
		{"twice, and it was not settled when something happened", func(s *story) {
			a := s.committed("a", "k", 1, topicPlaced)
			s.everywhere(10, a)
			s.delivered(rabbit, 20, a)
			s.happened("relay_killed", 13, 14, rabbit)
			s.sampled(rabbit, 10.1, sample{Settled: 3, Backlog: 1})
			s.sampled(rabbit, 10.5, sample{Settled: 3, Backlog: 7})
		}, nil},
		{"twice, and it may have been parked", func(s *story) {
			a := s.committed("a", "k", 1, topicPlaced)
			s.everywhere(10, a)
			s.delivered(rabbit, 20, a)
			s.happened("relay_killed", 13, 14, rabbit)
			s.sampled(rabbit, 10.1, sample{Settled: 3, Backlog: 1})
			s.sampled(rabbit, 10.5, sample{Settled: 4, Parked: 1})
		}, nil},
		{"dead with a reason", func(s *story) {
			a, b := s.committed("a", "k", 1, topicNeverNATS), s.committed("b", "k", 2, topicPlaced)
			s.delivered(rabbit, 1, a)
			s.delivered(rabbit, 2, b)
			s.delivered(nats, 1, b)
			s.dead[nats] = []deadLetter{{ID: "a", Reason: "no stream", At: s.at(2)}}
			s.delivered(nats, 50, a) // when it was retried
		}, nil},
		{"a dead letter that does not come back", func(s *story) {
			s.delivered(rabbit, 1, s.committed("a", "k", 1, topicNeverNATS))
			s.dead[nats] = []deadLetter{{ID: "a", Reason: "no stream", At: s.at(2)}}
		}, []string{"lost to-nats"}},
		{"dead without a reason", func(s *story) {
			s.everywhere(1, s.committed("a", "k", 1, topicNeverNATS))
			s.dead[nats] = []deadLetter{{ID: "a", At: s.at(2)}}
		}, []string{"wrongly_dead to-nats"}},
		{"dead because the broker was down", func(s *story) {
			s.everywhere(1, s.committed("a", "k", 1, topicPlaced))
			s.dead[rabbit] = []deadLetter{{ID: "a", Reason: "connection refused", At: s.at(2)}}
		}, []string{"wrongly_dead to-rabbitmq"}},
		{"dead, never committed", func(s *story) {
			s.dead[rabbit] = []deadLetter{{ID: "a", Reason: "refused", At: s.at(2)}}
		}, []string{"phantom to-rabbitmq"}},
		{"past the filter", func(s *story) {
			m := s.committed("a", "k", 1, topicPlaced)
			s.everywhere(1, m)
			s.delivered(audit, 1, m)
		}, []string{"misrouted audit"}},
		{"another payload", func(s *story) {
			s.everywhere(1, s.committed("a", "k", 1, topicPlaced))
			s.arrivals[nats][0].Payload.N = 7
		}, []string{"corrupted to-nats"}},
		{"the epoch goes back", func(s *story) {
			s.sampled(nats, 1, sample{Epoch: 3, Settled: 10})
			s.sampled(nats, 2, sample{Epoch: 2, Settled: 10})
		}, []string{"epoch_went_back to-nats"}},
		{"a batch settled twice", func(s *story) {
			s.everywhere(1, s.committed("a", "k", 1, topicPlaced))
			s.sampled(audit, 1, sample{Epoch: 3, Settled: 2})
			s.sampled(nats, 1, sample{Epoch: 3, Settled: 2}) // it may have been parked
		}, []string{"settled_miscounted audit"}},
		{"the cursor goes back", func(s *story) {
			s.sampled(nats, 1, sample{Epoch: 3, Settled: 10})
			s.sampled(nats, 2, sample{Epoch: 3, Settled: 9})
		}, []string{"settled_went_back to-nats"}},
		{"lost with WAL, delivered or not", func(s *story) {
			a, b := s.committed("a", "k", 1, topicPlaced), s.committed("b", "k", 2, topicPlaced)
			s.everywhere(1, a)
			delete(s.facts, a.ID)
			delete(s.facts, b.ID)
			s.everywhere(9, s.committed("c", "k", 1, topicPlaced))
			s.walLost(0, 5)
		}, nil},
		{"acknowledged after WAL was lost", func(s *story) {
			s.committed("a", "k", 1, topicPlaced)
			s.journal["a"].Written, s.journal["a"].Ended = s.at(8), s.at(9)
			delete(s.facts, "a")
			s.walLost(0, 5)
		}, []string{"database_lost "}},
		{"rolled back and delivered while WAL was lost", func(s *story) {
			s.delivered(nats, 1, s.committed("a", "k", 1, topicPlaced))
			delete(s.facts, "a")
			s.journal["a"].Outcome = rolledBack
			s.walLost(0, 5)
		}, []string{"phantom to-nats"}},
		{"an id comes again after WAL was lost", func(s *story) {
			a, b := s.committed("a", "", 0, topicPlaced), s.committed("b", "", 0, topicPlaced)
			s.everywhere(1, a)
			delete(s.facts, "a")
			s.everywhere(9, b)
			s.arrivals[rabbit][0].ID, s.arrivals[rabbit][1].ID = "shop-7", "shop-7"
			s.walLost(0, 5)
		}, []string{"id_given_again to-rabbitmq", "lost to-rabbitmq"}},
		{"the cursor goes back with lost WAL", func(s *story) {
			s.sampled(nats, 1, sample{Epoch: 3, Settled: 10})
			s.sampled(nats, 9, sample{Epoch: 2, Settled: 8})
			s.walLost(2, 5)
		}, nil},
		{"the id of a message changes", func(s *story) {
			a := s.committed("a", "", 0, topicPlaced)
			s.everywhere(1, a)
			s.delivered(rabbit, 3, a)
			s.arrivals[rabbit][0].ID, s.arrivals[rabbit][1].ID = "shop-7", "shop-8"
			s.happened("relay_killed", 2, 3, rabbit)
		}, []string{"id_changed to-rabbitmq"}},
		{"an id of the producer's is not the one that is delivered", func(s *story) {
			a := s.committed("a", "", 0, topicPlaced)
			a.OwnID = true
			s.facts["a"] = a
			s.everywhere(1, a)
			s.arrivals[nats][0].ID = "shop-7"
		}, []string{"corrupted to-nats"}},
		{"jobs of a key, one after the other", func(s *story) {
			a, b := s.enqueued("a", "k", 1), s.enqueued("b", "k", 2)
			s.ran("worker-a", 1, 2, a, 500)
			s.ran("worker-b", 3, 4, a, jobDone)
			s.ran("worker-a", 4.1, 5, b, jobDone)
		}, nil},
		{"a job that waits for another one, before and after the end of that", func(s *story) {
			a, b, c := s.enqueued("a", "k", 1), s.enqueued("b", "", 0), s.enqueued("c", "", 0)
			s.ran("worker-a", 1, 2, a, jobDone)
			s.ran("worker-b", 3, 4, b, jobDone)
			s.ran("worker-b", 1.5, 3, c, jobDone)
			s.runs[1].After, s.runs[2].After = []string{a.ID}, []string{a.ID}
		}, []string{"out_of_order jobs"}},
		{"more leases than the limit", func(s *story) { s.running = map[string]int64{"silver": 5} }, []string{"over_limit jobs"}},
		{"a job that was replaced, and the one in its place", func(s *story) {
			s.enqueued("a", "u-00", 1)
			s.ran("worker-a", 1, 2, s.enqueued("b", "u-00", 2), jobDone)
		}, nil},
		{"a job that was replaced runs, and the one in its place does not", func(s *story) {
			a := s.enqueued("a", "u-00", 1)
			s.enqueued("b", "u-00", 2)
			s.ran("worker-a", 1, 2, a, jobDone)
		}, []string{"lost jobs"}},
		{"a job was not done", func(s *story) {
			s.ran("worker-a", 1, 2, s.enqueued("a", "k", 1), 500)
		}, []string{"lost jobs"}},
		{"a job never ran", func(s *story) { s.enqueued("a", "k", 1) }, []string{"lost jobs"}},
		{"a job was rolled back and ran", func(s *story) {
			m := s.enqueued("a", "k", 1)
			*s = *newStory()
			s.ran("worker-a", 1, 2, m, jobDone)
		}, []string{"phantom jobs"}},
		{"a job that nothing enqueued", func(s *story) {
			m := s.committed("a", "k", 1, topicPlaced)
			s.everywhere(1, m)
			s.ran("worker-a", 1, 2, m, jobDone)
		}, []string{"phantom jobs"}},
		{"a job in which something else is", func(s *story) {
			m := s.enqueued("a", "k", 1)
			m.N = 7
			s.ran("worker-a", 1, 2, m, jobDone)
		}, []string{"corrupted jobs"}},
		{"a job ran again after it was done", func(s *story) {
			m := s.enqueued("a", "k", 1)
			s.ran("worker-a", 10, 11, m, jobDone)
			s.ran("worker-b", 30, 31, m, jobDone)
			s.happened("worker_killed", 10, 12, jobsRoute)
			s.events[0].Holder = "worker-b"                // another one
			s.happened("worker_killed", 16, 18, jobsRoute) // long after
		}, []string{"unexplained_duplicates jobs"}},
		{"a job ran again after its worker was killed", func(s *story) {
			m := s.enqueued("a", "k", 1)
			s.ran("worker-a", 10, 11, m, jobDone)
			s.ran("worker-b", 14, 15, m, jobDone)
			s.happened("worker_killed", 11, 12, jobsRoute)
			s.events[0].Holder = "worker-a"
		}, nil},
		{"a job runs twice at a time", func(s *story) {
			m := s.enqueued("a", "", 0)
			s.ran("worker-a", 10, 13, m, jobDone)
			s.ran("worker-b", 11, 12, m, jobDone)
		}, []string{"jobs_together jobs"}},
		{"a job runs twice at a time, as its worker stood still", func(s *story) {
			m := s.enqueued("a", "", 0)
			s.ran("worker-a", 10, 15, m, jobDone)
			s.ran("worker-b", 14, 14.5, m, jobDone)
			s.happened("worker_paused", 10.5, 14.8, jobsRoute)
			s.events[0].Holder = "worker-a"
		}, nil},
		{"a worker that stood still begins a job that another one has by now", func(s *story) {
			m := s.enqueued("a", "", 0)
			s.ran("worker-b", 14, 15, m, jobDone)
			s.ran("worker-a", 14.6, 14.7, m, 0)
			s.happened("worker_paused", 10.5, 14.5, jobsRoute)
			s.events[0].Holder = "worker-a"
		}, nil},
		{"a late worker ends the lease of another one", func(s *story) {
			m := s.enqueued("a", "", 0)
			s.ran("worker-a", 10, 10.5, m, jobDone)
			s.ran("worker-b", 14, 16, m, jobDone)
			s.happened("worker_paused", 10.5, 15, jobsRoute)
			s.events[0].Holder = "worker-a"
			s.losses = []loss{{"worker-a", "a", s.at(15.1)}, {"worker-b", "a", s.at(16.1)}}
		}, []string{"lease_gone jobs"}},
		{"a worker loses the lease of a job that is cancelled", func(s *story) {
			s.ran("worker-a", 10, 12, s.enqueued("a", "", 0), jobDone)
			s.cancelled["a"] = cancellation{From: s.at(11), To: s.at(11.2), Certain: true}
			s.losses = []loss{{"worker-a", "a", s.at(12.1)}}
		}, nil},
		{"two jobs of a key at a time", func(s *story) {
			a, b := s.enqueued("a", "k", 1), s.enqueued("b", "k", 2)
			s.ran("worker-a", 10, 13, a, jobDone)
			s.ran("worker-b", 11, 14, b, jobDone)
		}, []string{"jobs_together jobs", "out_of_order jobs"}},
		{"a killed worker's lease does not last", func(s *story) {
			m := s.enqueued("a", "", 0)
			s.ran("worker-a", 10, 11, m, 0)
			s.ran("worker-b", 11.5, 12, m, jobDone)
			s.happened("worker_killed", 11, 12, jobsRoute)
		}, []string{"jobs_together jobs"}},
		{"a killed worker's lease lasts", func(s *story) {
			m := s.enqueued("a", "", 0)
			s.ran("worker-a", 10, 11, m, 0)
			s.ran("worker-b", 13, 14, m, jobDone)
			s.happened("worker_killed", 11, 12, jobsRoute)
		}, nil},
		{"a job overtakes one of its key that waits to be tried again", func(s *story) {
			a, b := s.enqueued("a", "k", 1), s.enqueued("b", "k", 2)
			s.ran("worker-a", 10, 11, a, 500)
			s.ran("worker-b", 12, 13, b, jobDone)
			s.ran("worker-a", 14, 15, a, jobDone)
		}, []string{"out_of_order jobs"}},
		{"a dead letter does not keep its key", func(s *story) {
			a, b := s.enqueued("a", "k", 1), s.enqueued("b", "k", 2)
			s.ran("worker-a", 10, 11, a, jobRefused)
			s.ran("worker-b", 12, 13, b, jobDone)
			s.ran("worker-a", 14, 15, a, jobDone)
			s.dead[jobsRoute] = []deadLetter{{ID: "a", Reason: "422"}}
		}, nil},
		{"a job is a dead letter that was not refused", func(s *story) {
			m := s.enqueued("a", "k", 1)
			s.ran("worker-a", 10, 11, m, 500)
			s.ran("worker-a", 12, 13, m, jobDone)
			s.dead[jobsRoute] = []deadLetter{{ID: "a", Reason: "500"}}
		}, []string{"wrongly_dead jobs"}},
		{"a job is cancelled while it runs, and its key continues", func(s *story) {
			a, b := s.enqueued("a", "k", 1), s.enqueued("b", "k", 2)
			s.ran("worker-a", 10, 13, a, 0)
			s.ran("worker-b", 11.5, 12, b, jobDone)
			s.cancelled["a"] = cancellation{From: s.at(11), To: s.at(11.2), Certain: true}
		}, nil},
		{"a cancelled job runs", func(s *story) {
			s.ran("worker-a", 20, 21, s.enqueued("a", "k", 1), jobDone)
			s.cancelled["a"] = cancellation{From: s.at(11), To: s.at(11.2), Certain: true}
		}, []string{"ran_after_cancel jobs"}},
		{"a job runs that was perhaps cancelled", func(s *story) {
			s.ran("worker-a", 20, 21, s.enqueued("a", "k", 1), jobDone)
			s.cancelled["a"] = cancellation{From: s.at(11), To: s.at(11.2)}
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStory()
			c.tell(s)
			v := check(&s.evidence)
			var found []string
			for _, x := range v.Violations {
				found = append(found, x.Kind+" "+x.Route)
			}
			if !slices.Equal(found, c.want) {
				t.Errorf("found %q, want %q", found, c.want)
			}
			var told strings.Builder
			tell(&told, &s.evidence, v, newChronicle(&strings.Builder{}))
			if n := strings.Count(told.String(), "VIOLATION"); n != len(c.want) {
				t.Errorf("%d violations are told:\n%s", n, &told)
			}
		})
	}
}

// The counts are sums over the subscriptions.
func TestCounts(t *testing.T) {
	s := newStory()
	a, b := s.committed("a", "k", 1, topicPaid), s.committed("b", "", 0, topicPlaced)
	s.everywhere(1, a)
	s.everywhere(2, b)
	s.delivered("to-nats", 3, b)
	s.happened("nats_killed", 2, 3, "to-nats")
	s.journal["c"] = &entry{message: message{ID: "c"}, Outcome: rolledBack}
	s.sampled("audit", 1, sample{Epoch: 1})
	s.sampled("audit", 2, sample{Epoch: 3, Settled: 2})
	v := check(&s.evidence)
	got := fmt.Sprintf("%d %d %d %d %d %d", v.Committed, v.Delivered, v.Duplicates, v.RolledBack, v.Takeovers, len(v.Violations))
	if got != "5 5 1 1 2 0" {
		t.Errorf("got %s", got)
	}
}

// Warnings of a worker about the machine explain lost leases; its warnings about jobs explain nothing.
func TestWarningsOfAWorker(t *testing.T) {
	log := `time=2026-11-29T14:10:02.500Z level=WARN msg="a job failed" queue=tasks job=868 attempt=2 dead=false err="the endpoint answered 500"
time=2026-11-29T14:10:03.612Z level=WARN msg="cannot extend the leases of jobs; trying until it works" queue=tasks err="context deadline exceeded"
time=2026-11-29T14:10:03.699Z level=WARN msg="the endpoint cannot be reached; the job rests, and no attempt is spent" queue=tasks job=869 in=5s
time=2026-11-29T14:10:03.702Z level=INFO msg="the database answers again" queue=tasks after=89.811093ms
time=2026-11-29T14:10:03.727Z level=WARN msg="the lease of a job was lost while it ran; it may run elsewhere" queue=tasks job=869 attempt=3 after=1.301646488s
`
	c := newChronicle(io.Discard)
	losses, err := c.readWarnings("worker-a", strings.NewReader(log))
	if err != nil || len(losses) != 1 || losses[0].Job != "869" {
		t.Fatalf("lost leases %+v, error %v", losses, err)
	}
	var details []string
	for _, e := range c.all() {
		details = append(details, e.Detail)
	}
	if want := []string{`worker-a: "cannot extend the leases of jobs; trying until it works"`}; !slices.Equal(details, want) {
		t.Errorf("events %q, want %q", details, want)
	}
	e := evidence{events: c.all()}
	if at := losses[0].At; !e.excused("worker-a", at.Add(-2*lease), at) || e.excused("worker-b", at.Add(-2*lease), at) {
		t.Error("the warning does not explain the lost lease, or explains one of another worker")
	}
}
