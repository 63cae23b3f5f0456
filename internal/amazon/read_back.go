package amazon

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/penstock/penstock/internal/readback"
)

// Queue is a FIFO queue of a run's own, and its consumer. It also reads the messages of a topic that it subscribes to.
type Queue struct {
	client   *sqs.Client
	idle     func()
	name     string
	url, ARN string // once it is made
}

// Renamed is a URL of --sink with another name of queue or topic behind the last separator.
func Renamed(sinkURL, separator, name string) string {
	target, query, _ := strings.Cut(sinkURL, "?")
	return target[:strings.LastIndex(target, separator)+1] + name + "?" + query
}

// NewQueue returns the consumer of a queue that Make makes.
func NewQueue(o *Settings, name string) (*Queue, error) {
	loaded, client, err := Load(o)
	if err != nil {
		return nil, err
	}
	return &Queue{name: name, idle: client.CloseIdleConnections, client: sqs.NewFromConfig(loaded, func(to *sqs.Options) {
		if to.HTTPClient = client; o.Endpoint != "" {
			to.BaseEndpoint = &o.Endpoint
		}
	})}, nil
}

// Make makes the queue. Topics of its account may send to it.
func (q *Queue) Make(ctx context.Context) error {
	made, err := q.client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &q.name, Attributes: map[string]string{"FifoQueue": "true"}})
	if err != nil {
		return err
	}
	q.url = aws.ToString(made.QueueUrl)
	of, err := q.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &q.url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn}})
	if err != nil {
		return err
	}
	q.ARN = of.Attributes["QueueArn"]
	return nil
}

// Permit lets a topic send to the queue.
func (q *Queue) Permit(ctx context.Context, topic string) error {
	policy := fmt.Sprintf(`{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"},
		"Action": "sqs:SendMessage", "Resource": %q, "Condition": {"ArnEquals": {"aws:SourceArn": %q}}}]}`, q.ARN, topic)
	_, err := q.client.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: &q.url, Attributes: map[string]string{"Policy": policy}})
	return err
}

// Drop deletes the queue with its contents.
func (q *Queue) Drop(ctx context.Context) error {
	_, err := q.client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: &q.url})
	return err
}

// Leave closes its connections.
func (q *Queue) Leave() error {
	q.idle()
	return nil
}

// Pull is that of a readback.Pulled. The service asks all its servers before it says that there is nothing.
func (q *Queue) Pull(ctx context.Context, got func(readback.Arrival)) (empty bool, err error) {
	answer, err := q.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &q.url, MaxNumberOfMessages: batchEntries, WaitTimeSeconds: 1, MessageAttributeNames: []string{"All"}})
	if err != nil || len(answer.Messages) == 0 {
		return true, err
	}
	var read []types.DeleteMessageBatchRequestEntry
	for i, m := range answer.Messages {
		attributes := map[string]string{}
		for name, value := range m.MessageAttributes {
			attributes[name] = aws.ToString(value.StringValue)
		}
		r, err := Read(aws.ToString(m.Body), attributes)
		if err != nil {
			return false, err
		}
		got(readback.Arrival{ID: r.ID, Key: r.Key, Payload: r.Payload})
		read = append(read, types.DeleteMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), ReceiptHandle: m.ReceiptHandle})
	}
	_, err = q.client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &q.url, Entries: read})
	return false, err
}
