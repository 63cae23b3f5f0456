package pubsub

import (
	"context"
	"errors"
	"strings"

	vendor "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/penstock/penstock/internal/attributes"
	"github.com/penstock/penstock/internal/readback"
)

// readBack is Driver.ReadBack. It reads a topic of the run's own through a subscription that keeps order.
func readBack(sinkURL, _, name string) (readback.Broker, error) {
	c, err := ParseURL(sinkURL)
	if err != nil {
		return nil, err
	}
	_, query, _ := strings.Cut(sinkURL, "?")
	topics, err := vendor.NewTopicAdminClient(context.Background(), c.options()...)
	if err != nil {
		return nil, err
	}
	subscriptions, err := vendor.NewSubscriptionAdminClient(context.Background(), c.options()...)
	if err != nil {
		return nil, errors.Join(err, topics.Close())
	}
	topic, from := "projects/"+c.Project+"/topics/"+name, "projects/"+c.Project+"/subscriptions/"+name
	none := 0
	return readback.NewPulled(readback.Pulled{
		URL:   "pubsub://" + c.Project + "/" + name + "?" + query,
		Leave: func() error { return errors.Join(topics.Close(), subscriptions.Close()) },
		Make: func(ctx context.Context) error {
			if _, err := topics.CreateTopic(ctx, &pubsubpb.Topic{Name: topic}); err != nil {
				return err
			}
			_, err := subscriptions.CreateSubscription(ctx, &pubsubpb.Subscription{Name: from, Topic: topic, EnableMessageOrdering: true, AckDeadlineSeconds: 600})
			return err
		},
		Drop: func(ctx context.Context) error {
			return errors.Join(subscriptions.DeleteSubscription(ctx, &pubsubpb.DeleteSubscriptionRequest{Subscription: from}),
				topics.DeleteTopic(ctx, &pubsubpb.DeleteTopicRequest{Topic: topic}))
		},
		// An answer without messages does not promise that there are none: three of them count.
		Pull: func(ctx context.Context, got func(readback.Arrival)) (empty bool, err error) {
			answer, err := subscriptions.Pull(ctx, &pubsubpb.PullRequest{Subscription: from, MaxMessages: maxRequestMessages})
			if none++; err != nil || len(answer.ReceivedMessages) == 0 {
				return none >= 3, err
			}
			none = 0
			read := &pubsubpb.AcknowledgeRequest{Subscription: from}
			for _, m := range answer.ReceivedMessages {
				got(readback.Arrival{ID: m.Message.Attributes[attributes.ID], Key: m.Message.Attributes[attributes.Key], Payload: m.Message.Data})
				read.AckIds = append(read.AckIds, m.AckId)
			}
			return false, subscriptions.Acknowledge(ctx, read)
		},
	}), nil
}
