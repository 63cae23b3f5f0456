package drivers

import (
	"github.com/penstock/penstock/sink/claimcheck"
	"github.com/penstock/penstock/sink/claimcheck/s3"
)

// OpenClaimCheck opens the store of a claim check. It need not be up.
func OpenClaimCheck(c claimcheck.Config) (claimcheck.Store, error) {
	if c.Directory != "" {
		return claimcheck.Directory(c.Directory), c.Validate()
	}
	store, err := s3.Open(c)
	if err != nil {
		return nil, err // not a nil *Store in a non-nil interface
	}
	return store, nil
}
