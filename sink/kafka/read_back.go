package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/readback"
)

const (
	// readPartitions is the number of partitions of a run's topic: more than the cores of a machine
	// that runs everything.
	readPartitions = 8
	// endHeader is a record's header that ends the reading of its partition.
	endHeader = "penstock-end"
)

// reader reads a topic of the run's own. The order of a key is that of its
// partition.
type reader struct {
	brokers []string
	sinkURL string
	topic   string
	client  *kgo.Client // for all but reading
}

// readBack is Driver.ReadBack.
func readBack(sinkURL, _, name string) (readback.Broker, error) {
	routed, err := readback.WithQuery(sinkURL, map[string]string{"topic": name})
	if err != nil {
		return nil, err
	}
	target, _, _ := strings.Cut(sinkURL, "?")
	hosts := strings.TrimSuffix(strings.TrimPrefix(target, "kafka://"), "/")
	if strings.ContainsAny(hosts, "@/") {
		return nil, errors.New("the consumer does not log in: use a Kafka listener without a user, kafka://host:9092")
	}
	k := &reader{sinkURL: routed, topic: name}
	for host := range strings.SplitSeq(hosts, ",") {
		if !strings.Contains(host, ":") {
			host += ":9092"
		}
		k.brokers = append(k.brokers, host)
	}
	return k, nil
}

func (k *reader) SinkURL() string { return k.sinkURL }

func (k *reader) Open(ctx context.Context, _ driver.Sink) (err error) {
	k.client, err = kgo.NewClient(kgo.SeedBrokers(k.brokers...), kgo.ClientID("penstock: consumer"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	if _, err = kadm.NewClient(k.client).CreateTopic(ctx, readPartitions, -1, nil, k.topic); err != nil {
		return penstock.Unavailable(penstock.WithHint(fmt.Errorf("creating the topic %s: %w", k.topic, err),
			"check that the brokers are up, that --sink names them, and that clients may create topics"))
	}
	return nil
}

func (k *reader) Read(ctx context.Context, got func(readback.Arrival)) error {
	from := map[int32]kgo.Offset{}
	for p := range int32(readPartitions) {
		from[p] = kgo.NewOffset().AtStart()
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(k.brokers...), kgo.ClientID("penstock: consumer"),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{k.topic: from}))
	if err != nil {
		return err
	}
	defer client.Close()
	for ended := 0; ended < readPartitions; {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fetches.Err0(); err != nil {
			return fmt.Errorf("reading the topic %s: %w", k.topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			a := readback.Arrival{Key: string(r.Key), Payload: r.Value}
			for _, h := range r.Headers {
				switch h.Key {
				case endHeader:
					ended++
					return
				case "penstock-id":
					a.ID = string(h.Value)
				}
			}
			got(a)
		})
	}
	return nil
}

// Finish marks the end of every partition.
func (k *reader) Finish(ctx context.Context) error {
	var marks []*kgo.Record
	for p := range int32(readPartitions) {
		marks = append(marks, &kgo.Record{Topic: k.topic, Partition: p, Headers: []kgo.RecordHeader{{Key: endHeader}}})
	}
	if err := k.client.ProduceSync(ctx, marks...).FirstErr(); err != nil {
		return fmt.Errorf("producing the end markers to the topic %s: %w", k.topic, err)
	}
	return nil
}

func (k *reader) Remove(ctx context.Context) error {
	if _, err := kadm.NewClient(k.client).DeleteTopic(ctx, k.topic); err != nil {
		return fmt.Errorf("deleting the topic %s: %w", k.topic, err)
	}
	return nil
}

func (k *reader) Close() error {
	if k.client != nil {
		k.client.Close()
	}
	return nil
}
