package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock/penstock"
)

// delivery is one Send.
type delivery struct {
	sink     *Sink
	producer *producer
	msgs     []penstock.Message
	records  []kgo.Record // those messages that can be records
	messages []int        // which message each record is

	errs   []error          // Send's answer: nil as long as nothing failed
	held   map[string]int   // keys of which a message has failed: the first one
	absent map[string]error // topics that accepted nothing
	index  map[*kgo.Record]int
}

// errHeldBack has no class: nothing is wrong with the message.
var errHeldBack = errors.New("held back: an earlier message with the same key was not accepted")

// fail answers message i, and holds back later messages of its key.
func (d *delivery) fail(i int, err error) {
	if d.errs == nil {
		d.errs, d.held = make([]error, len(d.msgs)), map[string]int{}
	}
	d.errs[i] = err
	if key := d.msgs[i].Key; key != "" {
		if first, ok := d.held[key]; !ok || i < first {
			d.held[key] = i
		}
	}
}

// isHeld answers message i if an earlier one of its key has failed.
func (d *delivery) isHeld(i int) bool {
	first, ok := d.held[d.msgs[i].Key]
	if !ok || i <= first {
		return false
	}
	d.errs[i] = errHeldBack
	return true
}

// encode makes records of the messages, and answers those that cannot be records.
func (d *delivery) encode() {
	d.records = make([]kgo.Record, len(d.msgs))
	d.messages = make([]int, 0, len(d.msgs))
	e := newEncoder(d.msgs, d.sink.cfg.Timestamp == timestampCreated)
	for i := range d.msgs {
		if d.isHeld(i) {
			continue
		}
		topic, err := d.sink.topic.Execute(&d.msgs[i])
		if err != nil {
			err = penstock.WithHint(err, "set the header when publishing, or change topic")
		} else {
			err = checkTopic(topic)
		}
		if err == nil {
			r := &d.records[len(d.messages)]
			e.record(r, &d.msgs[i], topic)
			if err = checkSize(r, d.sink.cfg.MaxMessageBytes); err == nil {
				d.messages = append(d.messages, i)
				continue
			}
			*r = kgo.Record{}
		}
		d.fail(i, err)
	}
	d.records = d.records[:len(d.messages)]
}

// run sends everything, in as many flights as the order within keys needs: one
// where all topics are known and no key has messages to two of them.
func (d *delivery) run(ctx context.Context) {
	pending := make([]int, len(d.records))
	for i := range pending {
		pending[i] = i
	}
	for len(pending) > 0 {
		if d.producer.over() { // and nothing else is sent anywhere
			for _, i := range pending {
				d.conclude(ctx, &d.records[i], kgo.ErrClientClosed)
			}
			return
		}
		var f *flight
		if f, pending = d.next(pending); len(f.line)+len(f.scouts) == 0 {
			continue
		}
		d.producer.fly(ctx, f)
		d.learn(f)
		if f.failures != nil {
			d.judge(ctx, f)
		}
	}
}

// next takes from pending the messages that may be sent together. Of one key these are messages to one known
// topic, or a single scout: Kafka keeps order only within a partition.
func (d *delivery) next(pending []int) (*flight, []int) {
	f := &flight{line: make([]*kgo.Record, 0, len(pending))}
	if d.oneTopic() {
		for _, i := range pending {
			f.line = append(f.line, &d.records[i])
		}
		return f, nil
	}
	const later = "" // no topic is called that
	var rest []int
	topicOf, scouted := map[string]string{}, map[string]bool{}
	for _, i := range pending {
		r, m := &d.records[i], d.messages[i]
		if d.isHeld(m) {
			continue
		}
		if err := d.absent[r.Topic]; err != nil {
			d.fail(m, err)
			continue
		}
		key := d.msgs[m].Key
		topic, seen := topicOf[key]
		seen = seen && key != ""
		switch known := d.producer.known[r.Topic]; {
		case known && (!seen || topic == r.Topic):
			f.line = append(f.line, r)
			topicOf[key] = r.Topic
		case !known && !seen && !scouted[r.Topic]:
			f.scouts = append(f.scouts, r)
			scouted[r.Topic], topicOf[key] = true, later
		default:
			rest = append(rest, i)
			topicOf[key] = later
		}
	}
	return f, rest
}

// oneTopic: the usual case needs no bookkeeping.
func (d *delivery) oneTopic() bool {
	if d.errs != nil || !d.producer.known[d.records[0].Topic] {
		return false
	}
	for i := range d.records {
		if d.records[i].Topic != d.records[0].Topic {
			return false
		}
	}
	return true
}

// learn notes which topics the scouts have found.
func (d *delivery) learn(f *flight) {
	for _, r := range f.scouts {
		if err := f.failures[r]; err == nil || spoilsBatch(err) {
			d.producer.found(r.Topic)
		}
	}
}

// judge answers the failed messages of a flight, once it is clear which of them are to blame.
func (d *delivery) judge(ctx context.Context, f *flight) {
	for _, r := range f.scouts { // alone in their batches
		d.conclude(ctx, r, f.failures[r])
	}
	d.isolate(ctx, d.sift(ctx, f))
}

// sift answers the messages of the line that failed for their own reason, and returns those of
// which one has failed the whole batch.
func (d *delivery) sift(ctx context.Context, f *flight) (suspects []*kgo.Record) {
	for _, r := range f.line {
		if err := f.failures[r]; spoilsBatch(err) && len(f.line) > 1 {
			suspects = append(suspects, r)
		} else {
			d.conclude(ctx, r, err)
		}
	}
	return suspects
}

func (d *delivery) conclude(ctx context.Context, r *kgo.Record, err error) {
	if err == nil {
		return
	}
	var e *kerr.Error
	topical := errors.As(err, &e) && aboutTopic(e)
	err = d.sink.verdict(ctx, d.producer, r, err)
	if topical {
		if d.absent == nil {
			d.absent = map[string]error{}
		}
		d.absent[r.Topic] = err
	}
	d.fail(d.message(r), err)
}

// message returns the message of a record.
func (d *delivery) message(r *kgo.Record) int {
	if d.index == nil { // usually no message asks
		d.index = make(map[*kgo.Record]int, len(d.records))
		for i := range d.records {
			d.index[&d.records[i]] = d.messages[i]
		}
	}
	return d.index[r]
}

// spoilsBatch reports whether a broker refused a whole batch because one of its records may be
// bad. Kafka does not show which one.
func spoilsBatch(err error) bool {
	var e *kerr.Error
	if !errors.As(err, &e) || e.Retriable && e != kerr.CorruptMessage {
		return false
	}
	return !aboutTopic(e) && !aboutAll(e)
}

// isolate sends suspects once more in halves, and refused halves in halves again. So it finds the
// guilty one, and the others arrive. They were not written before, because a batch is accepted or
// refused as a whole. The first half is finished before the second begins, which keeps the order.
func (d *delivery) isolate(ctx context.Context, suspects []*kgo.Record) {
	if len(suspects) == 0 {
		return
	}
	half := len(suspects) / 2
	for _, part := range [][]*kgo.Record{suspects[:half], suspects[half:]} {
		if f := (&flight{line: d.unheld(part)}); len(f.line) > 0 {
			d.producer.fly(ctx, f)
			d.isolate(ctx, d.sift(ctx, f))
		}
	}
}

// unheld leaves out messages whose key has failed meanwhile.
func (d *delivery) unheld(records []*kgo.Record) []*kgo.Record {
	var rest []*kgo.Record
	for _, r := range records {
		if !d.isHeld(d.message(r)) {
			rest = append(rest, r)
		}
	}
	return rest
}
