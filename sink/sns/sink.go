// Package sns publishes messages to topics of Amazon SNS.
//
//	message          SNS
//	Topic            topic (by the template topic_arn), attribute penstock-topic
//	ID               attribute penstock-id; of FIFO topics also the deduplication id
//	Key              attribute penstock-key; of FIFO topics also the group
//	CreatedAt        attribute penstock-created-at: RFC 3339, nanoseconds, UTC
//	Attempt          attribute penstock-attempt, from the second on
//	Headers          attributes of the same name
//	Payload          message
//
// A message that does not fit into text and ten attributes has the attribute penstock-envelope, and is
// an envelope of JSON. The DESIGN.md of the sink sqs describes it.
package sns

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/amazon"
	"github.com/penstock/penstock/internal/descriptor"
)

// Driver describes this sink for the list in internal/drivers.
var Driver = descriptor.Sink[Config]{
	Name: "sns", Usage: "sns://arn:aws:sns:REGION:ACCOUNT:TOPIC", Schemes: []string{"sns"},
	Parse: ParseURL, Open: descriptor.Opens(Open),
	// There is no binding for SNS. Names of attributes allow a hyphen, as HTTP's headers.
	Binding: descriptor.Headers("sns", "ce-"),
	Reach:   descriptor.Reaches(Open, (*Sink).reach), ReadBack: readBack,
}

// Sink publishes messages to topics. It is safe for concurrent use.
type Sink struct {
	*amazon.Sender
	client *sns.Client
}

var _ driver.Sink = (*Sink)(nil)

// Open checks the configuration. The service need not be up, and no credentials are asked for yet.
func Open(cfg Config, log *slog.Logger) (*Sink, error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("sns sink: %w", err)
	}
	client, idle, err := newClient(&cfg)
	if err != nil {
		return nil, fmt.Errorf("sns sink: %w", err)
	}
	s := &Sink{client: client}
	s.Sender, err = amazon.NewSender("SNS", cfg.TopicARN, &cfg.Settings, idle, s.batch)
	return s, err
}

// newClient also returns a function that closes its idle connections.
func newClient(cfg *Config) (client *sns.Client, idle func(), err error) {
	loaded, over, err := amazon.Load(&cfg.Settings)
	if err != nil {
		return nil, nil, err
	}
	return sns.NewFromConfig(loaded, func(to *sns.Options) {
		if to.HTTPClient = over; cfg.Endpoint != "" {
			to.BaseEndpoint = &cfg.Endpoint
		}
	}), over.CloseIdleConnections, nil
}

func (s *Sink) batch(ctx context.Context, topic string, entries []amazon.Entry) (taken []string, failed []amazon.Failure, err error) {
	list := make([]types.PublishBatchRequestEntry, len(entries))
	for i := range entries {
		e := &entries[i]
		attributes := make(map[string]types.MessageAttributeValue, len(e.Attributes))
		for name, value := range e.Attributes {
			attributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
		}
		list[i] = types.PublishBatchRequestEntry{Id: &e.ID, Message: &e.Body, MessageAttributes: attributes}
		if e.Group != "" {
			list[i].MessageGroupId, list[i].MessageDeduplicationId = &e.Group, &e.Dedup
		}
	}
	answer, err := s.client.PublishBatch(ctx, &sns.PublishBatchInput{TopicArn: &topic, PublishBatchRequestEntries: list})
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

// reach asks for the topic's attributes, if it is always the same.
func (s *Sink) reach(ctx context.Context) error {
	return s.Reach(func(to string) error {
		_, err := s.client.GetTopicAttributes(ctx, &sns.GetTopicAttributesInput{TopicArn: &to})
		return err
	})
}
