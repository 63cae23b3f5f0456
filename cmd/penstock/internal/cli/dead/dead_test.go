package dead

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/clitest"
	"github.com/penstock/penstock/internal/terminal"
)

func TestDeadPagesFollowThePayloads(t *testing.T) {
	page := func(n, bytes int) []deadLetter {
		letters := make([]deadLetter, n)
		for i := range letters {
			letters[i] = &deadMessage{DeadLetter: admin.DeadLetter{Message: penstock.Message{Payload: make([]byte, bytes)}}}
		}
		return letters
	}
	for _, tc := range []struct{ size, n, bytes, want int }{
		{16, 16, 100, 64}, {400, 400, 100, 500}, {16, 16, 4 << 20, 4}, {2, 2, 40 << 20, 1}, {1, 1, 60 << 20, 1}, {64, 64, 200 << 10, 64},
	} {
		if got := nextPage(tc.size, page(tc.n, tc.bytes)); got != tc.want {
			t.Errorf("after %d of %d bytes: %d, want %d", tc.n, tc.bytes, got, tc.want)
		}
	}
}

// jobCrowd has dead letters with the ids 1 to last.
type jobCrowd struct {
	last  int64
	acted []admin.DeadJobQuery
}

func (c *jobCrowd) DeadJobs(_ context.Context, q admin.DeadJobQuery) (page []admin.DeadJob, err error) {
	for id := q.AfterID + 1; id <= c.last && len(page) < q.Limit; id++ {
		page = append(page, admin.DeadJob{Job: penstock.Job{ID: id}})
	}
	return page, nil
}

func (c *jobCrowd) RetryDeadJobs(_ context.Context, q admin.DeadJobQuery) (int, error) {
	c.acted = append(c.acted, q)
	return len(q.IDs), nil
}

func (c *jobCrowd) DiscardDeadJobs(ctx context.Context, q admin.DeadJobQuery) (int, error) {
	return c.RetryDeadJobs(ctx, q)
}

func TestDeadJobsAreActedOnByID(t *testing.T) {
	a := &cli.App{Stderr: terminal.NewScrubber(io.Discard)}
	for _, action := range []deadAction{retryDead, discardDead} {
		c := &jobCrowd{last: 703}
		n, err := decide(t.Context(), a, &deadJobs{store: c, query: admin.DeadJobQuery{Queue: "emails", Key: "red"}}, 0, action, cli.Consent{Yes: true}, nil)
		if err != nil || n.chosen != 703 || n.done != 703 {
			t.Errorf("%s: %+v, %v", action.verb, n, err)
		}
		next := int64(1)
		for _, q := range c.acted {
			if len(q.IDs) == 0 || len(q.IDs) > largestPage || q.IDs[0] != next || q.Queue != "emails" {
				t.Fatalf("%s: acts on %d jobs from %v of %q", action.verb, len(q.IDs), q.IDs, q.Queue)
			}
			next = q.IDs[len(q.IDs)-1] + 1
		}
		clitest.Same(t, "acted on", fmt.Sprint(next-1), "703")
	}
}
