package amazon

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
)

// renewable loads new credentials after the service has refused those it has. The SDK renews those that end at
// a known time, and reads keys in a file once: so keys that were replaced would need a restart.
func renewable(c *aws.Config, load func(context.Context) (aws.Config, error)) {
	var refused atomic.Bool
	from := c.Credentials
	cache := aws.NewCredentialsCache(aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) { // one call at a time
		if refused.Swap(false) {
			if again, err := load(ctx); err == nil {
				if found, err := again.Credentials.Retrieve(ctx); err == nil { // else a file is half written, say
					from = again.Credentials
					return found, nil
				}
			}
		}
		return from.Retrieve(ctx)
	}))
	c.Credentials = cache
	c.APIOptions = append(c.APIOptions, func(stack *middleware.Stack) error {
		return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("PenstockCredentials", func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
			out, metadata, err := next.HandleDeserialize(ctx, in)
			if api, ok := errors.AsType[smithy.APIError](err); ok && kindOf(api.ErrorCode()) == credentials {
				refused.Store(true)
				cache.Invalidate()
			}
			return out, metadata, err
		}), middleware.Before)
	})
}
