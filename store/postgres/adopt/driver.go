package adopt

import (
	"context"
	"log/slog"

	"github.com/penstock/penstock/internal/descriptor"
)

// Driver is a store whose tables are adopted, for the program's list. The store itself does not import this package: a service that only publishes is
// not built with it.
func Driver(of descriptor.Store) descriptor.Store {
	of.Adopt = func(ctx context.Context, url, schema, subscription string, c Config, log *slog.Logger) (descriptor.Adopted, error) {
		return descriptor.Adopting(Open(ctx, Options{URL: url, Schema: schema, Subscription: subscription, Config: c, Log: log}))
	}
	of.Adoptions = func(ctx context.Context, url, schema string) ([]descriptor.Remembered, error) {
		return Subscriptions(ctx, Options{URL: url, Schema: schema})
	}
	of.DropAdoption = func(ctx context.Context, url, schema, subscription string) error {
		return DropSubscription(ctx, Options{URL: url, Schema: schema, Subscription: subscription})
	}
	return of
}
