package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/readback"
)

// endField is in the entry that ends a reading.
const endField = "penstock-end"

// reader reads a stream of the run's own. After a lost connection it continues behind the last entry.
type reader struct {
	sinkURL string
	stream  string
	client  *redis.Client
}

// readBack is Driver.ReadBack.
func readBack(sinkURL, _, name string) (readback.Broker, error) {
	c, err := ParseURL(sinkURL)
	if err != nil {
		return nil, err
	}
	o, err := c.server()
	if err != nil {
		return nil, err
	}
	if o.TLSConfig != nil {
		if o.TLSConfig, err = c.TLS.Load(); err != nil {
			return nil, err
		}
	}
	to, err := readback.WithQuery(sinkURL, map[string]string{"stream": name, "existing_only": "false", "max_length": "0"})
	if err != nil {
		return nil, err
	}
	return &reader{sinkURL: to, stream: name, client: redis.NewClient(o)}, nil
}

func (r *reader) SinkURL() string { return r.sinkURL }

// Open has nothing to make: the first entry makes the stream.
func (r *reader) Open(ctx context.Context, _ driver.Sink) error { return r.client.Ping(ctx).Err() }

func (r *reader) Read(ctx context.Context, got func(readback.Arrival)) error {
	for last := "0"; ; {
		streams, err := r.client.XRead(ctx, &redis.XReadArgs{Streams: []string{r.stream, last}, Count: 1000, Block: time.Second}).Result()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		for _, stream := range streams {
			for _, entry := range stream.Messages {
				if _, end := entry.Values[endField]; end {
					return nil
				}
				text := func(field string) string { s, _ := entry.Values[field].(string); return s }
				got(readback.Arrival{ID: text("penstock-id"), Key: text("penstock-key"), Payload: []byte(text("payload"))})
				last = entry.ID
			}
		}
	}
}

func (r *reader) Finish(ctx context.Context) error {
	if err := r.client.XAdd(ctx, &redis.XAddArgs{Stream: r.stream, Values: []string{endField, "1"}}).Err(); err != nil {
		return fmt.Errorf("the Redis server did not take the end marker: %w", err)
	}
	return nil
}

func (r *reader) Remove(ctx context.Context) error { return r.client.Del(ctx, r.stream).Err() }

func (r *reader) Close() error { return r.client.Close() }
