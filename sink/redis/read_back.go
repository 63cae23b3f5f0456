package redis

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock/penstock/internal/attributes"
	"github.com/penstock/penstock/internal/readback"
)

// readBack is Driver.ReadBack. It reads a stream of the run's own, which the first entry makes.
func readBack(sinkURL, _, name string) (readback.Broker, error) {
	c, err := ParseURL(sinkURL)
	o, unusable := c.options()
	to, unread := readback.WithQuery(sinkURL, map[string]string{"stream": name, "existing_only": "false", "max_length": "0"})
	if err := cmp.Or(err, unusable, unread); err != nil {
		return nil, err
	}
	client, last := redis.NewClient(o), "0"
	return readback.NewPulled(readback.Pulled{
		URL:   to,
		Make:  func(ctx context.Context) error { return client.Ping(ctx).Err() },
		Drop:  func(ctx context.Context) error { return client.Del(ctx, name).Err() },
		Leave: client.Close,
		Pull: func(ctx context.Context, got func(readback.Arrival)) (empty bool, err error) {
			streams, err := client.XRead(ctx, &redis.XReadArgs{Streams: []string{name, last}, Count: 1000, Block: time.Second}).Result()
			if errors.Is(err, redis.Nil) {
				return true, nil
			}
			for _, stream := range streams {
				for _, entry := range stream.Messages {
					text := func(field string) string { s, _ := entry.Values[field].(string); return s }
					got(readback.Arrival{ID: text(attributes.ID), Key: text(attributes.Key), Payload: []byte(text("payload"))})
					last = entry.ID
				}
			}
			return false, err
		},
	}), nil
}
