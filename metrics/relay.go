package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock/penstock/relay"
)

// relayMetrics are those of the relays in this process.
type relayMetrics struct {
	sent, confirmed, refused, retried, fetched, settled, parked, dead *prometheus.CounterVec
	inFlight, leases, sinks                                           *prometheus.GaugeVec
	confirm, send, fetch, settle                                      *prometheus.HistogramVec
}

func newRelayMetrics(f factory) relayMetrics {
	of := []string{"outbox", "subscription"}
	return relayMetrics{
		sent:      f.counter("penstock_relay_sent_messages_total", "Messages handed to the sink, each attempt counted.", of...),
		confirmed: f.counter("penstock_relay_confirmed_messages_total", "Messages that the sink confirmed.", of...),
		refused:   f.counter("penstock_relay_refused_messages_total", "Messages that the sink refused, each attempt counted.", of...),
		retried:   f.counter("penstock_relay_retried_messages_total", "Messages sent that had been refused before.", of...),
		fetched:   f.counter("penstock_relay_fetched_messages_total", "Messages read from the database.", of...),
		settled:   f.counter("penstock_relay_settled_messages_total", "Messages that are settled durably: delivered, parked or dead.", of...),
		parked:    f.counter("penstock_relay_parked_messages_total", "Messages that were parked, each time counted.", of...),
		dead:      f.counter("penstock_relay_dead_letters_total", "Messages that became dead letters.", of...),
		inFlight:  f.gauge("penstock_relay_in_flight_messages", "Messages that are fetched and not settled.", of...),
		leases:    f.gauge("penstock_relay_leases_held", "Leases that this process holds: 1, or of an adopted table one per worker; 0 on standby.", of...),
		sinks:     f.gauge("penstock_relay_sinks", "Relays of this process by the state of their sink.", append(of, "state")...),
		confirm:   f.histogram("penstock_relay_commit_to_confirm_seconds", "From when a message was written, by the database's clock, to the sink's confirm, by this machine's.", ofWaits, of...),
		send:      f.histogram("penstock_relay_send_duration_seconds", "How long a call of the sink takes, with up to max_batch messages.", ofCalls, of...),
		fetch:     f.histogram("penstock_relay_fetch_duration_seconds", "How long a read from the database takes, also of nothing.", ofCalls, of...),
		settle:    f.histogram("penstock_relay_settle_duration_seconds", "How long a durable write of the cursor takes.", ofCalls, of...),
	}
}

// sinkStates are the values of the label state.
var sinkStates = map[relay.SinkState]string{relay.SinkUp: "up", relay.SinkUnavailable: "unavailable", relay.SinkRefusing: "refusing"}

// RelayObserver exports the actions of one relay, and adds them up. Each relay has a separate one, also if several in one process
// relay the same subscription.
type RelayObserver struct {
	relay.Counters
	held, sink atomic.Int32 // of Lease and Sink

	sent, confirmed, refused, retried, fetched, settled, parked, dead prometheus.Counter
	inFlight, leases                                                  prometheus.Gauge
	sinks                                                             map[relay.SinkState]prometheus.Gauge
	confirm, send, fetch, settle                                      prometheus.Observer
}

func (r *relayMetrics) observer(of ...string) *RelayObserver {
	o := &RelayObserver{
		sent: r.sent.WithLabelValues(of...), confirmed: r.confirmed.WithLabelValues(of...), refused: r.refused.WithLabelValues(of...), retried: r.retried.WithLabelValues(of...),
		fetched: r.fetched.WithLabelValues(of...), settled: r.settled.WithLabelValues(of...), parked: r.parked.WithLabelValues(of...), dead: r.dead.WithLabelValues(of...),
		inFlight: r.inFlight.WithLabelValues(of...), leases: r.leases.WithLabelValues(of...), sinks: map[relay.SinkState]prometheus.Gauge{},
		confirm: r.confirm.WithLabelValues(of...), send: r.send.WithLabelValues(of...), fetch: r.fetch.WithLabelValues(of...), settle: r.settle.WithLabelValues(of...),
	}
	for state, name := range sinkStates {
		o.sinks[state] = r.sinks.WithLabelValues(append(of, name)...)
	}
	o.sinks[relay.SinkUp].Inc()
	return o
}

// Sent implements relay.Observer.
func (o *RelayObserver) Sent(s relay.Send) {
	o.Counters.Sent(s)
	o.sent.Add(float64(len(s.Messages)))
	o.confirmed.Add(float64(s.Delivered))
	o.refused.Add(float64(s.Failed))
	o.retried.Add(float64(s.Retried))
	o.send.Observe(s.Took.Seconds())
	for i := range s.Messages {
		if s.Errors == nil || s.Errors[i] == nil {
			o.confirm.Observe(waited(s.Answered, s.Messages[i].CreatedAt))
		}
	}
}

// waited is never negative, although two clocks may differ.
func waited(until, since time.Time) float64 { return max(until.Sub(since), 0).Seconds() }

// Fetched implements relay.Observer.
func (o *RelayObserver) Fetched(messages int, took time.Duration) {
	o.fetched.Add(float64(messages))
	o.fetch.Observe(took.Seconds())
}

// Settled implements relay.Observer.
func (o *RelayObserver) Settled(messages int, took time.Duration) {
	o.Counters.Settled(messages, took)
	o.settled.Add(float64(messages))
	o.settle.Observe(took.Seconds())
}

// Parked implements relay.Observer.
func (o *RelayObserver) Parked(messages int) {
	o.Counters.Parked(messages)
	o.parked.Add(float64(messages))
}

// Dead implements relay.Observer.
func (o *RelayObserver) Dead(messages int) {
	o.Counters.Dead(messages)
	o.dead.Add(float64(messages))
}

// InFlight implements relay.Observer. Relays that share the series add to it.
func (o *RelayObserver) InFlight(messages int) {
	o.inFlight.Add(float64(int64(messages) - o.InFlightMessages.Swap(int64(messages))))
}

// Sink implements relay.Observer.
func (o *RelayObserver) Sink(is relay.SinkState) {
	was := relay.SinkState(o.sink.Swap(int32(is)))
	o.sinks[was].Dec()
	o.sinks[is].Inc()
}

// Lease implements relay.Observer.
func (o *RelayObserver) Lease(held bool) {
	is := int32(0)
	if held {
		is = 1
	}
	o.leases.Add(float64(is - o.held.Swap(is)))
}
