package pubsub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	vendor "cloud.google.com/go/pubsub/v2/apiv1"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/publicaddr"
)

// streams is how many requests a connection of Google's servers carries at a time.
const streams = 100

// silence is after which time without an answer a connection is asked whether it lives.
const silence = 10 * time.Second

// link makes the client when a Send needs it, because that asks for credentials.
type link struct {
	cfg *Config

	mu     sync.Mutex
	client *vendor.TopicAdminClient
	closed bool
}

func (l *link) get(ctx context.Context) (*vendor.TopicAdminClient, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, penstock.ErrClosed
	}
	if l.client != nil {
		return l.client, nil
	}
	client, err := vendor.NewTopicAdminClient(context.WithoutCancel(ctx), l.cfg.options()...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoClient, err)
	}
	client.CallOptions = &vendor.TopicAdminCallOptions{} // no retries: the relay tries again
	l.client = client
	return client, nil
}

func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.client != nil {
		_ = l.client.Close() // no request is under way
	}
}

// options of the client. It connects again soon after an outage, where gRPC would wait for up to two minutes.
func (c *Config) options() []option.ClientOption {
	wait := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}
	all := []option.ClientOption{
		option.WithGRPCConnectionPool(1 + (c.Concurrency-1)/streams),
		option.WithGRPCDialOption(grpc.WithConnectParams(grpc.ConnectParams{Backoff: wait, MinConnectTimeout: c.ConnectTimeout})),
		option.WithGRPCDialOption(grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: silence, Timeout: c.Timeout})),
		option.WithGRPCDialOption(grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(2 * maxRequestBytes))),
		option.WithTelemetryDisabled(),
	}
	if c.Endpoint == "" {
		return all
	}
	u, _ := c.permitted().Endpoint(c.Endpoint)
	address := u.Host
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), u.Scheme) // a name that the dialer knows as a port
	}
	dialer := &net.Dialer{Timeout: c.ConnectTimeout, Control: c.permitted().Control}
	all = append(all, option.WithEndpoint(address), option.WithGRPCDialOption(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if _, private := errors.AsType[*publicaddr.Error](err); private {
			err = fmt.Errorf("%w: %s", err, publicaddr.AllowHint)
		}
		return conn, err
	})))
	if u.Scheme == "http" {
		all = append(all, option.WithoutAuthentication(), option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	}
	return all
}
