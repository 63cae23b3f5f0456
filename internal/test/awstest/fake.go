package awstest

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Fake is an emulator that follows the documentation of SQS and SNS. A test may have it refuse.
type Fake struct {
	mu        sync.Mutex
	queues    map[string]*queue // by name; a topic's messages are in the queue of its name
	topics    map[string]bool
	handles   int
	maxBytes  int
	refuse    func(id, body string) (code string, senderFault bool)
	refuseAll string // the code with which every request to send is refused
	sizes     []int
	arrived   chan struct{} // closed with the next message
}

type queue struct {
	waiting []message
	known   map[string]bool // ids of deduplication
}

type message struct {
	ID         string               `json:"Id"`
	Group      string               `json:"MessageGroupId"`
	Dedup      string               `json:"MessageDeduplicationId"`
	Body       string               `json:"MessageBody"`
	Handle     string               `json:"ReceiptHandle"`
	Attributes map[string]attribute `json:"MessageAttributes"`
}

type attribute struct{ DataType, StringValue string }

func newFake() *Fake {
	return &Fake{queues: map[string]*queue{}, topics: map[string]bool{}, maxBytes: 1 << 20, arrived: make(chan struct{})}
}

// RefuseEntries has refuse decide on each entry: an empty code takes it.
func (f *Fake) RefuseEntries(refuse func(id, body string) (code string, senderFault bool)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = refuse
}

// RefuseAll refuses every batch with an error code; an empty one ends this.
func (f *Fake) RefuseAll(code string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuseAll = code
}

// MaxBytes is the largest message that queues and topics take.
func (f *Fake) MaxBytes(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.maxBytes = n
}

// Batches returns the sizes of the batches that came so far.
func (f *Fake) Batches() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]int(nil), f.sizes...)
}

// request is a request to SQS, of any action.
type request struct {
	QueueName, QueueUrl string
	WaitTimeSeconds     int
	Entries             []message
}

// name is that of the queue that a request is for.
func (r request) name() string { return r.QueueUrl[strings.LastIndexByte(r.QueueUrl, '/')+1:] }

// problem is an error of a whole request.
type problem struct{ code, message string }

func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	action, isJSON := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.")
	var in request
	if isJSON {
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			return // the connection was cut
		}
	} else {
		if err := r.ParseForm(); err != nil {
			return
		}
		action = r.PostForm.Get("Action")
	}
	if in.WaitTimeSeconds > 0 {
		f.await(r.Context(), in.name(), time.Duration(in.WaitTimeSeconds)*time.Second)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out any
	var failed *problem
	switch {
	case strings.Contains(r.Header.Get("Authorization"), "Credential="+DeniedID):
		failed = &problem{"SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method. " +
			"The Canonical String for this request should have been 'POST\n/\n\nx-amz-security-token:" + r.Header.Get("X-Amz-Security-Token") + "'"}
	case isJSON:
		out, failed = f.sqs(action, in)
	default:
		out, failed = f.sns(action, r.PostForm)
	}
	switch {
	case isJSON && failed != nil:
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(status(failed))
		_ = json.NewEncoder(w).Encode(map[string]string{"__type": "com.amazonaws.sqs#" + failed.code, "message": failed.message})
	case isJSON:
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_ = json.NewEncoder(w).Encode(out)
	case failed != nil:
		w.WriteHeader(status(failed))
		fmt.Fprintf(w, "<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>r</RequestId></ErrorResponse>", failed.code, escape(failed.message))
	default:
		fmt.Fprintf(w, "<%[1]sResponse><%[1]sResult>%[2]s</%[1]sResult><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></%[1]sResponse>", action, out)
	}
}

func status(p *problem) int {
	switch p.code {
	case "ServiceUnavailable", "InternalFailure":
		return http.StatusServiceUnavailable
	case "SignatureDoesNotMatch":
		return http.StatusForbidden
	}
	return http.StatusBadRequest
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}

func (f *Fake) sqs(action string, in request) (any, *problem) {
	if action == "CreateQueue" {
		f.queues[in.QueueName] = &queue{known: map[string]bool{}}
		return map[string]string{"QueueUrl": "https://sqs." + Region + ".amazonaws.com/" + Account + "/" + in.QueueName}, nil
	}
	name := in.name()
	q := f.queues[name]
	if q == nil {
		return nil, &problem{"QueueDoesNotExist", "The specified queue does not exist."}
	}
	switch action {
	case "GetQueueAttributes":
		return map[string]any{"Attributes": map[string]string{"QueueArn": "arn:aws:sqs:" + Region + ":" + Account + ":" + name}}, nil
	case "SetQueueAttributes":
		return map[string]any{}, nil
	case "DeleteQueue":
		delete(f.queues, name)
		return map[string]any{}, nil
	case "DeleteMessageBatch":
		for _, e := range in.Entries {
			if i := slices.IndexFunc(q.waiting, func(m message) bool { return m.Handle == e.Handle }); i == 0 {
				q.waiting = q.waiting[1:] // the usual case, which a long queue must not slow down
			} else if i > 0 {
				q.waiting = slices.Delete(q.waiting, i, i+1)
			}
		}
		return map[string]any{"Successful": []any{}}, nil
	case "ReceiveMessage":
		var out []map[string]any
		for _, m := range q.waiting[:min(10, len(q.waiting))] { // until they are deleted: an answer may be lost, and is asked for again
			out = append(out, map[string]any{"MessageId": "m", "ReceiptHandle": m.Handle, "Body": m.Body, "MD5OfBody": sum(m.Body), "MessageAttributes": m.Attributes})
		}
		return map[string]any{"Messages": out}, nil
	case "SendMessageBatch":
		taken, refused, failed := f.send(name, q, in.Entries)
		if failed != nil {
			return nil, failed
		}
		successful, entries := []any{}, []any{}
		for _, m := range taken {
			successful = append(successful, map[string]string{"Id": m.ID, "MessageId": "m", "MD5OfMessageBody": sum(m.Body)})
		}
		for _, r := range refused {
			entries = append(entries, map[string]any{"Id": r.id, "Code": r.code, "Message": "refused", "SenderFault": r.senderFault})
		}
		return map[string]any{"Successful": successful, "Failed": entries}, nil
	}
	return nil, &problem{"InvalidAction", action}
}

// await waits until a queue has a message, up to a limit.
func (f *Fake) await(ctx context.Context, queue string, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for ctx.Err() == nil {
		f.mu.Lock()
		q, arrived := f.queues[queue], f.arrived
		empty := q != nil && len(q.waiting) == 0
		f.mu.Unlock()
		if !empty {
			return
		}
		select {
		case <-arrived:
		case <-ctx.Done():
		}
	}
}

func sum(body string) string {
	s := md5.Sum([]byte(body))
	return hex.EncodeToString(s[:])
}

func (f *Fake) sns(action string, in url.Values) (string, *problem) {
	arn := in.Get("TopicArn")
	name := arn[strings.LastIndexByte(arn, ':')+1:]
	switch {
	case action == "CreateTopic":
		f.topics[in.Get("Name")] = true
		return "<TopicArn>arn:aws:sns:" + Region + ":" + Account + ":" + in.Get("Name") + "</TopicArn>", nil
	case !f.topics[name]:
		return "", &problem{"NotFound", "Topic does not exist"}
	case action == "DeleteTopic":
		delete(f.topics, name)
		return "", nil
	case action == "Subscribe":
		return "<SubscriptionArn>arn</SubscriptionArn>", nil
	case action == "GetTopicAttributes":
		return "<Attributes></Attributes>", nil
	case action != "PublishBatch":
		return "", &problem{"InvalidAction", action}
	}
	var batch []message
	for i := 1; ; i++ {
		at := "PublishBatchRequestEntries.member." + strconv.Itoa(i) + "."
		if !in.Has(at + "Id") {
			break
		}
		m := message{ID: in.Get(at + "Id"), Group: in.Get(at + "MessageGroupId"), Dedup: in.Get(at + "MessageDeduplicationId"), Body: in.Get(at + "Message"), Attributes: map[string]attribute{}}
		for j := 1; ; j++ {
			a := at + "MessageAttributes.entry." + strconv.Itoa(j) + "."
			if !in.Has(a + "Name") {
				break
			}
			m.Attributes[in.Get(a+"Name")] = attribute{in.Get(a + "Value.DataType"), in.Get(a + "Value.StringValue")}
		}
		batch = append(batch, m)
	}
	taken, refused, failed := f.send(name, f.queues[name], batch)
	if failed != nil {
		return "", failed
	}
	var successful, entries strings.Builder
	for _, m := range taken {
		fmt.Fprintf(&successful, "<member><Id>%s</Id><MessageId>m</MessageId></member>", m.ID)
	}
	for _, r := range refused {
		fmt.Fprintf(&entries, "<member><Id>%s</Id><Code>%s</Code><Message>refused</Message><SenderFault>%v</SenderFault></member>", r.id, r.code, r.senderFault)
	}
	return "<Successful>" + successful.String() + "</Successful><Failed>" + entries.String() + "</Failed>", nil
}

type refusal struct {
	id, code    string
	senderFault bool
}

// send takes a batch as the services document it.
func (f *Fake) send(name string, q *queue, batch []message) (taken []message, refused []refusal, failed *problem) {
	f.sizes = append(f.sizes, len(batch))
	invalid := func(format string, args ...any) *problem {
		return &problem{"InvalidParameterValue", fmt.Sprintf(format, args...)}
	}
	total, ids := 0, map[string]bool{}
	fifo := strings.HasSuffix(name, ".fifo")
	switch {
	case f.refuseAll != "":
		return nil, nil, &problem{f.refuseAll, "refused"}
	case len(batch) == 0:
		return nil, nil, &problem{"EmptyBatchRequest", "empty"}
	case len(batch) > 10:
		return nil, nil, &problem{"TooManyEntriesInBatchRequest", "more than 10"}
	}
	for _, m := range batch {
		size := len(m.Body)
		for name, a := range m.Attributes {
			if a.StringValue == "" || !valid(a.StringValue) {
				return nil, nil, invalid("the value of the attribute %q", name)
			}
			size += len(name) + len(a.DataType) + len(a.StringValue)
		}
		total += size
		switch {
		case ids[m.ID]:
			return nil, nil, &problem{"BatchEntryIdsNotDistinct", m.ID}
		case m.Body == "" || !valid(m.Body):
			return nil, nil, &problem{"InvalidMessageContents", "Invalid characters found"}
		case len(m.Attributes) > 10:
			return nil, nil, invalid("Number of message attributes [%d] exceeds the allowed maximum [10].", len(m.Attributes))
		case size > f.maxBytes:
			return nil, nil, invalid("One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", f.maxBytes)
		case fifo && (!token(m.Group) || !token(m.Dedup)):
			return nil, nil, invalid("the group %q or the deduplication id %q", m.Group, m.Dedup)
		}
		ids[m.ID] = true
	}
	if total > f.maxBytes {
		return nil, nil, &problem{"BatchRequestTooLong", fmt.Sprintf("Batch requests cannot be longer than %d bytes. You have sent %d bytes.", f.maxBytes, total)}
	}
	for _, m := range batch {
		if f.refuse != nil {
			if code, senderFault := f.refuse(m.ID, m.Body); code != "" {
				refused = append(refused, refusal{m.ID, code, senderFault})
				continue
			}
		}
		taken = append(taken, m)
		if fifo {
			if q.known[m.Dedup] {
				continue // accepted, and not delivered again
			}
			q.known[m.Dedup] = true
		}
		f.handles++
		m.Handle = strconv.Itoa(f.handles)
		q.waiting = append(q.waiting, m)
	}
	close(f.arrived)
	f.arrived = make(chan struct{})
	return taken, refused, nil
}

func valid(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF
	}) < 0
}

func token(s string) bool {
	return s != "" && len(s) <= 128 && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}
