// Package sqs sends messages to queues of Amazon SQS.
//
//	message          SQS
//	Topic            queue (by the template queue_url), attribute penstock-topic
//	ID               attribute penstock-id; of FIFO queues also the deduplication id
//	Key              attribute penstock-key; of FIFO queues also the group
//	CreatedAt        attribute penstock-created-at: RFC 3339, nanoseconds, UTC
//	Attempt          attribute penstock-attempt, from the second on
//	Headers          attributes of the same name
//	Payload          body
//
// A message that does not fit into text and ten attributes has the attribute penstock-envelope, and an
// envelope of JSON as its body. DESIGN.md describes it.
package sqs

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/amazon"
	"github.com/penstock/penstock/internal/descriptor"
)

// Driver describes this sink for the list in internal/drivers.
var Driver = descriptor.Sink[Config]{
	Name: "sqs", Usage: "sqs://HOST/ACCOUNT/QUEUE", Schemes: []string{"sqs"},
	Parse: ParseURL, Open: descriptor.Opens(Open),
	// There is no binding for SQS. Names of attributes allow a hyphen, as HTTP's headers.
	Binding: descriptor.Headers("sqs", "ce-"),
	Reach:   descriptor.Reaches(Open, (*Sink).reach), ReadBack: readBack,
}

// Sink sends messages to queues. It is safe for concurrent use.
type Sink struct {
	*amazon.Sender
	client *sqs.Client
}

var _ driver.Sink = (*Sink)(nil)

// Open checks the configuration. The service need not be up, and no credentials are asked for yet.
func Open(cfg Config, log *slog.Logger) (*Sink, error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("sqs sink: %w", err)
	}
	loaded, over, err := amazon.Load(&cfg.Settings)
	if err != nil {
		return nil, fmt.Errorf("sqs sink: %w", err)
	}
	s := &Sink{client: sqs.NewFromConfig(loaded, func(to *sqs.Options) {
		if to.HTTPClient = over; cfg.Endpoint != "" {
			to.BaseEndpoint = &cfg.Endpoint
		}
	})}
	s.Sender, err = amazon.NewSender("SQS", cfg.QueueURL, &cfg.Settings, over.CloseIdleConnections, s.batch)
	return s, err
}

func (s *Sink) batch(ctx context.Context, queue string, entries []amazon.Entry) (taken []string, failed []amazon.Failure, err error) {
	list := make([]types.SendMessageBatchRequestEntry, len(entries))
	for i := range entries {
		e := &entries[i]
		attributes := make(map[string]types.MessageAttributeValue, len(e.Attributes))
		for name, value := range e.Attributes {
			attributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
		}
		list[i] = types.SendMessageBatchRequestEntry{Id: &e.ID, MessageBody: &e.Body, MessageAttributes: attributes}
		if e.Group != "" {
			list[i].MessageGroupId, list[i].MessageDeduplicationId = &e.Group, &e.Dedup
		}
	}
	answer, err := s.client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &queue, Entries: list})
	if err != nil {
		return nil, nil, err
	}
	for _, e := range answer.Successful {
		taken = append(taken, aws.ToString(e.Id))
	}
	for _, f := range answer.Failed {
		failed = append(failed, amazon.Failure{ID: aws.ToString(f.Id), Code: aws.ToString(f.Code), Message: aws.ToString(f.Message), SenderFault: f.SenderFault})
	}
	return taken, failed, nil
}

// reach asks for the queue's attributes, if it is always the same.
func (s *Sink) reach(ctx context.Context) error {
	return s.Reach(func(to string) error {
		_, err := s.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &to, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn}})
		return err
	})
}
