package bench

import (
	"context"
)

// adopted has Penstock process the table as the last rung has it.
func (p *processor) adopted(ctx context.Context) (rate float64, err error) {
	return 0, nil
}
