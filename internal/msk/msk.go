// Package msk is the Kafka sink with the default chain of AWS's SDK, for Amazon MSK with IAM. The sink
// itself does not import the SDK.
package msk

import (
	"context"
	"log/slog"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	sasl "github.com/twmb/franz-go/pkg/sasl/aws"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/descriptor"
	"github.com/penstock/penstock/sink/kafka"
)

// Driver is that of sink/kafka, with credentials.
var Driver = withCredentials(kafka.Driver)

func withCredentials(d descriptor.Sink[kafka.Config]) descriptor.Sink[kafka.Config] {
	open, reach := d.Open, d.Reach
	d.Open = func(c kafka.Config, log *slog.Logger) (driver.Sink, error) {
		c.AWS = new(chain)
		return open(c, log)
	}
	d.Reach = func(ctx context.Context, c kafka.Config, log *slog.Logger) error {
		c.AWS = new(chain)
		return reach(ctx, c, log)
	}
	return d
}

// chain is the environment, the shared files, web identity, and the role of the container or the machine.
type chain struct {
	mu          sync.Mutex
	credentials aws.CredentialsProvider // it keeps credentials while they are valid
}

// Retrieve reads the configuration of AWS when it is needed for the first time. It reads it again for keys that have no end,
// because a file may have others by now.
func (c *chain) Retrieve(ctx context.Context) (auth sasl.Auth, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.credentials == nil {
		loaded, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return auth, err
		}
		c.credentials = loaded.Credentials
	}
	found, err := c.credentials.Retrieve(ctx)
	if err != nil || !found.CanExpire {
		c.credentials = nil
	}
	auth.AccessKey, auth.SecretKey, auth.SessionToken = found.AccessKeyID, found.SecretAccessKey, found.SessionToken
	return auth, err
}
