package sns

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/penstock/penstock/internal/amazon"
	"github.com/penstock/penstock/internal/readback"
)

// readBack is Driver.ReadBack. It reads a queue of SQS that subscribes to a topic of the run's own.
func readBack(sinkURL, _, name string) (readback.Broker, error) {
	name += ".fifo"
	to := amazon.Renamed(sinkURL, ":", name)
	c, err := ParseURL(to)
	if err != nil {
		return nil, err
	}
	q, err := amazon.NewQueue(&c.Settings, name)
	if err != nil {
		return nil, err
	}
	topics, idle, err := newClient(&c)
	if err != nil {
		return nil, err
	}
	return readback.NewPulled(readback.Pulled{
		URL:   to,
		Pull:  q.Pull,
		Leave: func() error { idle(); return q.Leave() },
		Make: func(ctx context.Context) error {
			if _, err := topics.CreateTopic(ctx, &sns.CreateTopicInput{Name: &name, Attributes: map[string]string{"FifoTopic": "true"}}); err != nil {
				return err
			}
			if err := errors.Join(q.Make(ctx), q.Permit(ctx, c.TopicARN)); err != nil {
				return err
			}
			_, err := topics.Subscribe(ctx, &sns.SubscribeInput{TopicArn: &c.TopicARN, Protocol: aws.String("sqs"), Endpoint: &q.ARN, Attributes: map[string]string{"RawMessageDelivery": "true"}})
			return err
		},
		Drop: func(ctx context.Context) error {
			_, err := topics.DeleteTopic(ctx, &sns.DeleteTopicInput{TopicArn: &c.TopicARN})
			return errors.Join(err, q.Drop(ctx))
		},
	}), nil
}
