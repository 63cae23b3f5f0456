package tables

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/penstock/penstock/internal/retry"
)

// Attempts are transactions of a store's own that write something new. Each leaves a row with its number, by which it is known to have happened
// if its answer was lost: its rows may have been carried off by then. Another one takes the row away.
type Attempts struct {
	mu      sync.Mutex
	swept   time.Time // when the rows of processes that died were looked for
	over    []int64   // whose rows no call asks for
	givenUp []givenUp // whose rows keep them from happening late
}

type givenUp struct {
	number int64
	at     time.Time
}

// Rows of a process that died are deleted a day later by another process. Each process looks for them every hour.
const (
	leftAfter = 24 * time.Hour
	leftEvery = time.Hour
)

// late is how long a server may take for statements that were sent over a lost connection.
const late = 10 * time.Minute

// Noting is the statement that leaves an attempt's row, if there is more in it than the number, and how that is read.
type Noting struct {
	Text string
	Args Args
	Read func(Scan) error // rows of an attempt whose answer was lost, by "select numbers"
}

// Once runs a transaction once, whatever becomes of the connection: it begins with the batch's statements.
func (a *Attempts) Once(ctx context.Context, on DB, retries *retry.Counter, note Noting, fn func(number int64, first *Batch) error) error {
	return retries.Once(ctx, func(number int64) error {
		b := &Batch{}
		a.sweep(b)
		over := a.take()
		if len(over) > 0 {
			b.Do("delete from {schema}.attempts where {attempt in over}", Args{"over": over})
		}
		b.Do(cmp.Or(note.Text, "insert into {schema}.attempts (attempt) values ({attempt})"), Args{"attempt": number}.With(note.Args))
		err := fn(number, b)
		if err == nil {
			over = []int64{number}
		}
		a.note(over)
		return err
	}, func(ctx context.Context, number int64) (bool, error) { return a.happened(ctx, on, note, number) })
}

// sweep takes away rows that others left, if it is time to look for them.
func (a *Attempts) sweep(b *Batch) {
	if a == nil { // no answer is lost
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.swept) > leftEvery {
		a.swept = time.Now()
		b.Do("delete from {schema}.attempts where at < {died_before}", Args{"died_before": time.Now().UTC().Add(-leftAfter)})
	}
}

// take hands over numbers whose rows must be deleted. note gets them back if they were not.
func (a *Attempts) take() (over []int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.givenUp) > 0 && time.Since(a.givenUp[0].at) > late {
		a.over, a.givenUp = append(a.over, a.givenUp[0].number), a.givenUp[1:]
	}
	over, a.over = a.over, nil
	return over
}

func (a *Attempts) note(over []int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = append(a.over, over...)
}

// happened looks for an attempt's row. If there is none it puts one there, which keeps the attempt from happening later; one that is under way is
// waited for.
func (a *Attempts) happened(ctx context.Context, on DB, note Noting, number int64) (happened bool, err error) {
	args := Args{"attempt": number}
	b := new(Batch).Do("insert into {schema}.attempts (attempt, given_up) values ({attempt}, true)", args)
	given := true
	if err = on.Run(ctx, b); on.Duplicate(err) {
		b = new(Batch).Row(new(bool), "select given_up from {schema}.attempts where attempt = {attempt}", args, &given)
		if note.Read != nil {
			b.Rows(note.Read, "select numbers from {schema}.attempts where attempt = {attempt} and not given_up", args)
		}
		err = on.Run(ctx, b)
	}
	switch {
	case err != nil:
		return false, err
	case given:
		a.mu.Lock()
		defer a.mu.Unlock()
		a.givenUp = append(a.givenUp, givenUp{number, time.Now()})
		return false, nil
	}
	a.note([]int64{number})
	return true, nil
}
