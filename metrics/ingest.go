package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// IngestObserver counts requests that bring messages over HTTP, and their answers.
type IngestObserver struct {
	requests, messages *prometheus.CounterVec
	duration           *prometheus.HistogramVec
}

func newIngestMetrics(f factory) IngestObserver {
	return IngestObserver{
		requests: f.counter("penstock_ingest_requests_total", "Requests with messages by the status of the answer; 200 is accepted, all else rejected. With 403 and 404 the label outbox is empty. Where every outbox is served it is also empty until a message has come.", "outbox", "code"),
		messages: f.counter("penstock_ingest_messages_total", "Messages of accepted requests: they are committed, or were before with the same ids.", "outbox"),
		duration: f.histogram("penstock_ingest_request_duration_seconds", "From when a request's head had been read to its answer: the wait for its body, for room and for the commit.", ofCalls, "outbox"),
	}
}

// Answered counts one answer: its status code, how many messages the request had, and how long it took.
func (o *IngestObserver) Answered(outbox string, status, messages int, took time.Duration) {
	outbox = labels(outbox)[0]
	o.requests.WithLabelValues(outbox, strconv.Itoa(status)).Inc()
	o.messages.WithLabelValues(outbox).Add(float64(messages))
	o.duration.WithLabelValues(outbox).Observe(took.Seconds())
}
